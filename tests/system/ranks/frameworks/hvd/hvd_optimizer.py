"""A rank: hvd.DistributedOptimizer with each of its arguments against a plain optimizer on the batches of all ranks."""

import copy
import warnings

import gradbus.horovod.torch as hvd
import pytest
import torch

BATCH, STEPS = 6, 4


def pair():
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(5, 40), torch.nn.Tanh(), torch.nn.Linear(40, 3))
    return copy.deepcopy(model), model


def batches():
    """Inputs and targets of all ranks, step by step."""
    random = torch.Generator().manual_seed(7)
    count = BATCH * hvd.size()
    return [
        (torch.randn(count, 5, generator=random), torch.randint(0, 3, (count,), generator=random)) for _ in range(STEPS)
    ]


def mine(tensor):
    return tensor[hvd.rank() * BATCH : (hvd.rank() + 1) * BATCH]


def loss_of(model, x, y):
    return torch.nn.functional.cross_entropy(model(x), y)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def assert_same(ours, alone, tolerance=2e-6):
    for (name, a), b in zip(ours.named_parameters(), alone.parameters()):
        worst = (a - b).abs().max().item()
        assert worst <= tolerance * max(1.0, b.abs().max().item()), (name, worst)
    alike = hvd.allgather_object([parameter.tolist() for parameter in ours.parameters()])
    assert all(other == alike[0] for other in alike)


def train_alone(model):
    optimizer = sgd(model)
    for x, y in batches():
        optimizer.zero_grad()
        loss_of(model, x, y).backward()
        optimizer.step()


def train(model, scale=1.0, **options):
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters(), **options)
    assert isinstance(optimizer, torch.optim.SGD)
    for x, y in batches():
        optimizer.zero_grad()
        (loss_of(model, mine(x), mine(y)) * scale).backward()
        optimizer.step()
    return optimizer


def compared(tolerance=2e-6, **options):
    ours, alone = pair()
    train(ours, **options)
    train_alone(alone)
    assert_same(ours, alone, tolerance)


def case_plain():
    compared()
    compared(op=hvd.Average, compression=hvd.Compression.none, process_set=hvd.global_process_set)


def case_sum():
    compared(op=hvd.Sum, scale=1 / hvd.size())


def case_options_of_gradbus():
    compared(wait="step", schedule="ddp", broadcast=True)


def case_compression():
    compared(tolerance=2e-3, compression=hvd.Compression.fp16)
    compared(tolerance=2e-3, compression="fp16")


def case_predivide_factor():
    compared(gradient_predivide_factor=2.0)


def case_predivide_keeps_half_precision_finite():
    """Ranks' float16 gradients are 40000, whose sum would overflow."""
    weight = torch.nn.Parameter(torch.zeros(4, dtype=torch.float16))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=2.0**-10), gradient_predivide_factor=hvd.size())
    (weight * 40000.0).sum().backward()
    assert torch.equal(weight.grad.float(), torch.full((4,), float(torch.tensor(40000.0).half()))), weight.grad
    optimizer.step()


def case_groups():
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        compared(groups=2)
        compared(num_groups=3)
        ours, alone = pair()
        train(ours, groups=[list(ours.parameters())[:2]])
        train_alone(alone)
        assert_same(ours, alone)
    kinds = [one.category for one in found if "groups" in str(one.message)]
    assert kinds == [DeprecationWarning, RuntimeWarning], found


def case_two_passes():
    ours, alone = pair()
    optimizer = hvd.DistributedOptimizer(sgd(ours), ours.named_parameters(), backward_passes_per_step=2)
    for x, y in batches():
        optimizer.zero_grad()
        for half in (slice(0, BATCH // 2), slice(BATCH // 2, BATCH)):
            (loss_of(ours, mine(x)[half], mine(y)[half]) / 2).backward()
        optimizer.step()
    train_alone(alone)
    assert_same(ours, alone)


def case_fewer_passes_than_announced():
    """The last batch of an epoch: step() exchanges what there is."""
    ours, alone = pair()
    optimizer = hvd.DistributedOptimizer(sgd(ours), ours.named_parameters(), backward_passes_per_step=2)
    for x, y in batches():
        optimizer.zero_grad()
        loss_of(ours, mine(x), mine(y)).backward()
        optimizer.synchronize()
        with warnings.catch_warnings(), optimizer.skip_synchronize():
            warnings.simplefilter("error")
            optimizer.step()
    train_alone(alone)
    assert_same(ours, alone)


def case_step_after_synchronize():
    """Horovod's warning, once for each step; gradients are exchanged once."""
    ours, alone = pair()
    optimizer = hvd.DistributedOptimizer(sgd(ours), ours.named_parameters())
    for x, y in batches():
        optimizer.zero_grad()
        loss_of(ours, mine(x), mine(y)).backward()
        optimizer.synchronize()
        with pytest.warns(UserWarning, match=r"optimizer.step\(\) called without optimizer.skip_synchronize\(\)"):
            optimizer.step()
    train_alone(alone)
    assert_same(ours, alone)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.step()


def case_another_number_of_passes():
    """Each step has one pass more than the last one."""
    ours, alone = pair()
    optimizer = hvd.DistributedOptimizer(sgd(ours), ours.named_parameters())
    for passes, (x, y) in enumerate(batches(), 1):
        optimizer.set_backward_passes_per_step(passes)
        optimizer.zero_grad()
        for _ in range(passes):
            (loss_of(ours, mine(x), mine(y)) / passes).backward()
        optimizer.step()
    train_alone(alone)
    assert_same(ours, alone)
    loss_of(ours, *map(mine, batches()[0])).backward()
    with pytest.raises(hvd.HorovodInternalError, match="between backward.. and step"):
        optimizer.set_backward_passes_per_step(2)
    optimizer.zero_grad()
    optimizer.set_backward_passes_per_step(2)


class Thirds(hvd.Compression.none):
    """A compressor of a script: gradients travel divided by 3, with another shape."""

    @staticmethod
    def compress(tensor):
        return tensor.flatten() / 3, tensor.shape

    @staticmethod
    def decompress(tensor, ctx):
        return tensor.view(ctx) * 3


def case_own_compressor():
    compared(compression=Thirds)
    compared(compression=Thirds(), op=hvd.Sum, scale=1 / hvd.size(), groups=2)
    ours, alone = pair()
    optimizer = hvd.DistributedOptimizer(sgd(ours), compression=Thirds, backward_passes_per_step=2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 1.0)
    optimizer.set_backward_passes_per_step(1)
    for number, (x, y) in enumerate(batches()):
        optimizer.zero_grad()
        if number == 0:  # as scripts clip gradients
            loss_of(ours, mine(x), mine(y)).backward()
            optimizer.synchronize()
            with optimizer.skip_synchronize():
                optimizer.step()
        else:
            optimizer.step(lambda x=x, y=y: evaluated(optimizer, loss_of(ours, mine(x), mine(y))))
        scheduler.step()
    train_alone(alone)
    assert_same(ours, alone)
    optimizer.synchronize()
    with pytest.warns(UserWarning, match="skip_synchronize"):
        optimizer.step()


def case_scaler_with_own_compressor():
    """Without synchronize() a rank would leave a step out alone, after an overflow of its own."""
    if not hasattr(torch.amp, "GradScaler"):
        return
    ours, _ = pair()
    optimizer = hvd.DistributedOptimizer(sgd(ours), compression=Thirds)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for number, (x, y) in enumerate(batches()):
        optimizer.zero_grad()
        overflows = number == 1 and hvd.rank() == hvd.size() - 1
        scaler.scale(loss_of(ours, mine(x), mine(y)) * (float("inf") if overflows else 1)).backward()
        if number == 0:
            with pytest.raises(hvd.HorovodInternalError, match=r"a gradient scaler steps.*call optimizer.synchronize"):
                scaler.step(optimizer)
        optimizer.synchronize()
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == (4.0 if number == 0 else 2.0)
    everywhere = hvd.allgather_object([p.tolist() for p in ours.parameters()])
    assert all(one == everywhere[0] for one in everywhere)


def evaluated(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    return loss


def case_shards():
    compared(shard=True)


def case_clipping_as_horovod_says():
    ours, alone = pair()
    optimizer, reference = hvd.DistributedOptimizer(sgd(ours), ours.named_parameters()), sgd(alone)
    for x, y in batches():
        optimizer.zero_grad()
        (30 * loss_of(ours, mine(x), mine(y))).backward()
        optimizer.synchronize()
        norm = torch.nn.utils.clip_grad_norm_(ours.parameters(), 0.5)
        with optimizer.skip_synchronize():
            optimizer.step()
        reference.zero_grad()
        (30 * loss_of(alone, x, y)).backward()
        assert abs(norm - torch.nn.utils.clip_grad_norm_(alone.parameters(), 0.5)) < 1e-3 * norm
        reference.step()
    assert_same(ours, alone, 1e-5)


def case_sparse_gradients():
    """Rank r uses rows r and r + 1 of an embedding."""
    for options in ({"sparse_as_dense": True}, {}):
        models = []
        for sparse in (True, False):
            torch.manual_seed(1)
            models.append(torch.nn.Embedding(hvd.size() + 1, 3, sparse=sparse))
        ours, alone = models
        optimizer = torch.optim.SGD(ours.parameters(), lr=0.5)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            optimizer = hvd.DistributedOptimizer(optimizer, ours.named_parameters(), **options)
            ours(torch.tensor([hvd.rank(), hvd.rank() + 1])).square().sum().backward()
        optimizer.step()
        assert options or any("dense" in str(one.message) for one in found), found
        reference = torch.optim.SGD(alone.parameters(), lr=0.5)
        rows = torch.tensor([[rank, rank + 1] for rank in range(hvd.size())]).flatten()
        (alone(rows).square().sum() / hvd.size()).backward()
        reference.step()
        assert torch.allclose(ours.weight, alone.weight)


def case_optimizer_state():
    """Rank 0 has trained; the others get its parameters and momenta."""
    ours, alone = pair()
    optimizer, reference = sgd(ours), sgd(alone)
    x, y = batches()[0]
    for model, one in ((ours, optimizer), (alone, reference)):
        if hvd.rank() == 0 or model is alone:
            loss_of(model, x, y).backward()
            one.step()
            one.zero_grad()
    hvd.broadcast_parameters(ours.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=ours.named_parameters())
    hvd.broadcast_optimizer_state(optimizer, root_rank=0, model=ours)
    for x, y in batches()[1:]:
        optimizer.zero_grad()
        loss_of(ours, mine(x), mine(y)).backward()
        optimizer.step()
        reference.zero_grad()
        loss_of(alone, x, y).backward()
        reference.step()
    assert_same(ours, alone)


def case_forms_of_parameters():
    for form in (dict, list, lambda pairs: [parameter for _, parameter in pairs], iter):
        model = torch.nn.Linear(3, 2)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(hvd.rank() + 1.0)
        hvd.broadcast_parameters(form(list(model.named_parameters())), hvd.size() - 1)
        assert all((parameter == hvd.size()).all() for parameter in model.parameters())


def case_process_set():
    """Ranks 0 and 2 share a model; rank 1 trains alone with the same lines."""
    if hvd.size() < 3:
        return
    some = hvd.add_process_set([0, 2])
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), process_set=some)
    (weight * (hvd.rank() + 1)).sum().backward()
    optimizer.synchronize()
    with optimizer.skip_synchronize():
        optimizer.step()
    assert torch.equal(weight.detach(), torch.full((2,), -2.0)), weight
    hvd.barrier()
    weight.grad = None
    momentum = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0, momentum=0.5), process_set=some)
    if hvd.rank() == 0:
        momentum.state[weight]["momentum_buffer"] = torch.full_like(weight, 3.0)
    hvd.broadcast_optimizer_state(momentum, root_rank=0)  # all ranks, though some have a plain optimizer
    assert (momentum.state[weight]["momentum_buffer"] == 3).all()
    hvd.remove_process_set(some)


hvd.init()
for name, case in list(globals().items()):
    if name.startswith("case_"):
        print(name, flush=True)
        case()
        hvd.barrier()
print("ok")

"""A rank: DistributedOptimizer against a plain optimizer that one process runs on the global batch.

Every case trains the same model twice for a few steps: `ours` on this rank's slice through Gradbus,
`alone` on all ranks' slices without. The parameters must agree up to rounding, and be the same bits on
all ranks.
"""

import copy
import hashlib
import warnings

import gradbus.torch as gradbus
import torch

STEPS = 5
BATCH = 6  # of each rank


def new_model(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(5, 40), torch.nn.Tanh(), torch.nn.Linear(40, 3))


def sgd(parameters, **options):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, **options)


def batches():
    """(inputs, targets) of the global batch of each step."""
    random = torch.Generator().manual_seed(11)
    count = BATCH * gradbus.size()
    return [
        (torch.randn(count, 5, generator=random), torch.randint(0, 3, (count,), generator=random))
        for _ in range(STEPS)
    ]


def mine(tensor):
    return tensor[gradbus.rank() * BATCH : (gradbus.rank() + 1) * BATCH]


def loss_of(model, x, y):
    return torch.nn.functional.cross_entropy(model(x).float(), y)


def assert_same(ours, alone, tolerance=2e-6):
    for (name, a), b in zip(ours.named_parameters(), alone.parameters()):
        worst = (a - b).abs().max().item()
        assert worst <= tolerance * max(1.0, b.abs().max().item()), (name, worst)
    bits = b"".join(p.detach().view(torch.uint8).numpy().tobytes() for p in ours.parameters())
    assert len(set(gradbus.allgather_object(hashlib.sha256(bits).hexdigest()))) == 1


def pair(seed=0):
    alone = new_model(seed)
    return copy.deepcopy(alone), alone


def wrap(optimizer, model, **options):
    return gradbus.DistributedOptimizer(optimizer, model.named_parameters(), **options)


def case_plain_sgd():
    for set_to_none in (True, False):
        ours, alone = pair()
        optimizer, reference = (
            wrap(sgd(ours.parameters()), ours, bucket_bytes=600),
            sgd(alone.parameters()),
        )
        assert isinstance(optimizer, torch.optim.SGD)
        for x, y in batches():
            optimizer.zero_grad(set_to_none=set_to_none)
            loss_of(ours, mine(x), mine(y)).backward()
            optimizer.step()
            reference.zero_grad()
            loss_of(alone, x, y).backward()
            reference.step()
        assert_same(ours, alone)


def case_sum():
    ours, alone = pair()
    optimizer, reference = (
        wrap(sgd(ours.parameters()), ours, op=gradbus.Sum),
        sgd(alone.parameters()),
    )
    for x, y in batches():
        optimizer.zero_grad()
        (loss_of(ours, mine(x), mine(y)) / gradbus.size()).backward()
        optimizer.step()
        reference.zero_grad()
        loss_of(alone, x, y).backward()
        reference.step()
    assert_same(ours, alone)


def case_adam_with_groups_and_scheduler():
    def build(model):
        groups = [{"params": model[0].parameters(), "lr": 0.02}, {"params": model[2].parameters()}]
        return torch.optim.AdamW(groups, lr=0.01, weight_decay=0.1)

    for scheduler_first in (True, False):
        ours, alone = pair()
        optimizer, reference = build(ours), build(alone)
        make = torch.optim.lr_scheduler.StepLR
        if scheduler_first:
            schedule = make(optimizer, 2, 0.5)
            optimizer = wrap(optimizer, ours)
        else:
            optimizer = wrap(optimizer, ours)
            schedule = make(optimizer, 2, 0.5)
        reference_schedule = make(reference, 2, 0.5)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # "scheduler stepped before the optimizer", and the like
            for x, y in batches():
                optimizer.zero_grad()
                loss_of(ours, mine(x), mine(y)).backward()
                optimizer.step()
                schedule.step()
                reference.zero_grad()
                loss_of(alone, x, y).backward()
                reference.step()
                reference_schedule.step()
        assert [g["lr"] for g in optimizer.param_groups] == [
            g["lr"] for g in reference.param_groups
        ]
        assert_same(ours, alone)


def case_accumulation():
    ours, alone = pair()
    optimizer = wrap(sgd(ours.parameters()), ours, backward_passes_per_step=2)
    reference = sgd(alone.parameters())
    for x, y in batches():
        optimizer.zero_grad()
        for half in (slice(0, BATCH // 2), slice(BATCH // 2, BATCH)):
            (loss_of(ours, mine(x)[half], mine(y)[half]) / 2).backward()
        optimizer.step()
        reference.zero_grad()
        loss_of(alone, x, y).backward()
        reference.step()
    assert_same(ours, alone)


def case_closure():
    ours, alone = pair()
    optimizer, reference = wrap(sgd(ours.parameters()), ours), sgd(alone.parameters())
    for x, y in batches():

        def closure(x=x, y=y):
            optimizer.zero_grad()
            loss = loss_of(ours, mine(x), mine(y))
            loss.backward()
            return loss

        assert optimizer.step(closure).item() > 0
        reference.zero_grad()
        loss_of(alone, x, y).backward()
        reference.step()
    assert_same(ours, alone)


def case_lbfgs():
    """Many evaluations a step, as many as the line search wants: ranks must take the same branches."""
    ours, alone = pair()
    options = {"max_iter": 6, "line_search_fn": "strong_wolfe"}
    optimizer = wrap(torch.optim.LBFGS(ours.parameters(), **options), ours)
    reference = torch.optim.LBFGS(alone.parameters(), **options)
    x, y = batches()[0]

    def closure():
        optimizer.zero_grad()
        loss = loss_of(ours, mine(x), mine(y))
        loss.backward()
        return loss

    def reference_closure():
        reference.zero_grad()
        loss = loss_of(alone, x, y)
        loss.backward()
        return loss

    for _ in range(2):
        optimizer.step(closure)
        reference.step(reference_closure)
    assert_same(ours, alone, tolerance=1e-3)  # a line search amplifies rounding


def case_clipping():
    for skip in (True, False):
        ours, alone = pair()
        optimizer, reference = wrap(sgd(ours.parameters()), ours), sgd(alone.parameters())
        for x, y in batches():
            optimizer.zero_grad()
            (20 * loss_of(ours, mine(x), mine(y))).backward()
            optimizer.synchronize()
            norm = torch.nn.utils.clip_grad_norm_(ours.parameters(), 0.5)
            if skip:
                with optimizer.skip_synchronize():
                    optimizer.step()
            else:
                optimizer.step()  # nothing new to exchange: the clipped gradients stay
            reference.zero_grad()
            (20 * loss_of(alone, x, y)).backward()
            expected = torch.nn.utils.clip_grad_norm_(alone.parameters(), 0.5)
            assert abs(norm - expected) < 1e-4 * expected and norm > 0.5
            reference.step()
        assert_same(ours, alone)


def case_unused():
    """Each step another rank leaves another layer out."""
    torch.manual_seed(3)
    ours = torch.nn.ModuleList([torch.nn.Linear(5, 3) for _ in range(3)])
    alone = copy.deepcopy(ours)
    optimizer, reference = (
        wrap(sgd(ours.parameters()), ours, bucket_bytes=64),
        sgd(alone.parameters()),
    )

    def output(layers, step, rank, x):
        return sum(layers[i](x) for i in range(3) if (i + step + rank) % 3 != 0)

    for step, (x, y) in enumerate(batches()):
        optimizer.zero_grad()
        logits = output(ours, step, gradbus.rank(), mine(x))
        torch.nn.functional.cross_entropy(logits, mine(y)).backward()
        optimizer.step()
        reference.zero_grad()
        for rank in range(gradbus.size()):
            part = slice(rank * BATCH, (rank + 1) * BATCH)
            logits = output(alone, step, rank, x[part])
            loss = torch.nn.functional.cross_entropy(logits, y[part])
            (loss / gradbus.size()).backward()
        reference.step()
    assert_same(ours, alone)


def case_frozen_shared_mixed():
    """A frozen layer, a weight that two layers share, and a layer in float64."""

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.frozen = torch.nn.Linear(5, 5)
            self.frozen.requires_grad_(False)
            self.a, self.b = torch.nn.Linear(5, 5), torch.nn.Linear(5, 5)
            self.b.weight = self.a.weight
            self.last = torch.nn.Linear(5, 3).double()

        def forward(self, x):
            return self.last(self.b(torch.tanh(self.a(self.frozen(x)))).double())

    torch.manual_seed(5)
    ours = Model()
    alone = copy.deepcopy(ours)
    before = ours.frozen.weight.clone()
    optimizer, reference = wrap(sgd(ours.parameters()), ours), sgd(alone.parameters())
    names = [bucket.core.name for bucket in optimizer._gradbus.exchange.buckets]
    assert any("/f32/" in n for n in names) and any("/f64/" in n for n in names)
    for x, y in batches():
        optimizer.zero_grad()
        loss_of(ours, mine(x), mine(y)).backward()
        optimizer.step()
        reference.zero_grad()
        loss_of(alone, x, y).backward()
        reference.step()
    assert_same(ours, alone)
    assert torch.equal(before, ours.frozen.weight) and ours.frozen.weight.grad is None


def case_bfloat16():
    """The mean of bf16 gradients, exactly: small whole numbers."""
    layer = torch.nn.Linear(4, 2, bias=False).to(torch.bfloat16)
    with torch.no_grad():
        layer.weight.zero_()
    optimizer = wrap(torch.optim.SGD(layer.parameters(), lr=1.0), layer)
    (layer.weight * float(2 * gradbus.size() * (gradbus.rank() + 1))).sum().backward()
    optimizer.step()
    expected = -2.0 * sum(range(1, gradbus.size() + 1))
    assert torch.equal(layer.weight, torch.full_like(layer.weight, expected))


def case_added_group():
    ours, alone = pair()
    optimizer = wrap(sgd(ours[0].parameters()), ours[0])
    optimizer.add_param_group({"params": list(ours[2].parameters()), "lr": 0.3})
    reference = sgd(alone[0].parameters())
    reference.add_param_group({"params": list(alone[2].parameters()), "lr": 0.3})
    for x, y in batches():
        optimizer.zero_grad()
        loss_of(ours, mine(x), mine(y)).backward()
        optimizer.step()
        reference.zero_grad()
        loss_of(alone, x, y).backward()
        reference.step()
    assert_same(ours, alone)


def case_gradients_set_aside():
    """model.zero_grad() and hand-made gradients put other tensors into .grad: copied, not lost."""
    ours, alone = pair()
    optimizer, reference = wrap(sgd(ours.parameters()), ours), sgd(alone.parameters())
    for x, y in batches():
        ours.zero_grad(set_to_none=True)
        loss_of(ours, mine(x), mine(y)).backward()
        optimizer.step()
        reference.zero_grad()
        loss_of(alone, x, y).backward()
        reference.step()
    optimizer.zero_grad()
    for parameter in ours.parameters():
        parameter.grad = torch.full_like(parameter, float(gradbus.rank()))
    optimizer.synchronize()
    mean = (gradbus.size() - 1) / 2
    assert all(torch.equal(p.grad, torch.full_like(p, mean)) for p in ours.parameters())
    with optimizer.skip_synchronize():
        optimizer.step()
    for parameter in alone.parameters():
        parameter.grad = torch.full_like(parameter, mean)
    reference.step()
    assert_same(ours, alone)


def case_unused_after_model_zero_grad():
    """.grad is None but the slot still holds the last mean, which must not be sent again."""
    layers = torch.nn.ModuleList([torch.nn.Linear(2, 2, bias=False) for _ in range(2)])
    optimizer = wrap(torch.optim.SGD(layers.parameters(), lr=1.0), layers)
    sum(layer(torch.ones(1, 2)).sum() for layer in layers).backward()
    optimizer.step()
    layers.zero_grad(set_to_none=True)
    layers[0](torch.ones(1, 2)).sum().backward()
    optimizer.synchronize()
    assert layers[0].weight.grad.tolist() == [[1, 1], [1, 1]]
    assert layers[1].weight.grad is None


def case_two_optimizers():
    """A GAN's two: backward of one must not disturb the other."""
    (ours, alone), (other, other_alone) = pair(1), pair(2)
    optimizers = [wrap(sgd(m.parameters()), m) for m in (ours, other)]
    references = [sgd(m.parameters()) for m in (alone, other_alone)]
    for x, y in batches():
        for mine_, model in zip(optimizers, (ours, other)):
            mine_.zero_grad()
            loss_of(model, mine(x), mine(y)).backward()
        for mine_ in reversed(optimizers):
            mine_.step()
        for reference, model in zip(references, (alone, other_alone)):
            reference.zero_grad()
            loss_of(model, x, y).backward()
            reference.step()
    assert_same(ours, alone)
    assert_same(other, other_alone)


def case_skipped_step():
    """backward() without step(): zero_grad() ends the exchange and nothing of it is left."""
    ours, alone = pair()
    optimizer, reference = wrap(sgd(ours.parameters()), ours), sgd(alone.parameters())
    for x, y in batches():
        optimizer.zero_grad()
        (loss_of(ours, mine(x), mine(y)) * 1000).backward()
        optimizer.zero_grad()
        loss_of(ours, mine(x), mine(y)).backward()
        optimizer.step()
        reference.zero_grad()
        loss_of(alone, x, y).backward()
        reference.step()
    assert_same(ours, alone)


def main():
    torch.set_num_threads(1)
    gradbus.init()
    for name, case in sorted(globals().items()):
        if name.startswith("case_"):
            case()
            print(name, flush=True)
    gradbus.shutdown()
    print("ok")


if __name__ == "__main__":
    main()

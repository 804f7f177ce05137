"""A rank: after backward() every .grad is the result, so loops written for DDP or one process stay as they are.

Each case trains a model on this rank's slice through Gradbus and a copy alone on the global batch; both must
agree, and the parameters be the same bits on all ranks.
"""

import functools

import gradbus.torch as gradbus
import torch
from optimizer import BATCH, assert_same, batches, loss_of, mine, new_model, pair, sgd, wrap
from torch.utils.checkpoint import checkpoint

STEPS = 4


def train(ours, alone, step, small=300):
    """`step(model, optimizer, x, y, scale)` trains both; the one alone sees all ranks' samples."""
    optimizer = wrap(sgd(ours.parameters()), ours, bucket_bytes=small)
    reference = sgd(alone.parameters())
    for x, y in batches()[:STEPS]:
        step(ours, optimizer, mine(x), mine(y))
        step(alone, reference, x, y)
    assert_same(ours, alone, tolerance=1e-5)


def case_clipping():
    norms = []

    def step(model, optimizer, x, y):
        optimizer.zero_grad()
        (30 * loss_of(model, x, y)).backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5).item())
        optimizer.step()

    train(*pair(), step)
    for ours, alone in zip(norms[::2], norms[1::2]):
        assert abs(ours - alone) < 1e-4 * alone and alone > 0.5, norms


def case_clipping_by_data():
    """Torch counts no writes through .data: only waiting helps."""

    def step(model, optimizer, x, y):
        model.zero_grad(set_to_none=True)
        (30 * loss_of(model, x, y)).backward()
        for parameter in model.parameters():
            parameter.grad.data.clamp_(-0.01, 0.01)
        optimizer.step()

    train(*pair(), step)


def case_loss_scaling():
    if not hasattr(torch.amp, "GradScaler"):
        return  # torch 1 scales on GPUs alone
    for init_scale in (1024.0, 3e38):  # the second one overflows and skips steps
        scalers = {}

        def step(model, optimizer, x, y, scalers=scalers, init_scale=init_scale):
            new = functools.partial(torch.amp.GradScaler, "cpu", init_scale=init_scale)
            scaler = scalers.setdefault(id(model), new())
            optimizer.zero_grad()
            scaler.scale(30 * loss_of(model, x, y)).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            scaler.step(optimizer)
            scaler.update()

        train(*pair(), step)
        scales = {scaler.get_scale() for scaler in scalers.values()}
        assert len(scales) == 1 and (init_scale < 1e38 or scales.pop() < init_scale), scalers


def case_loss_scaling_in_step():
    """With wait="step" a scaler would unscale what is sent meanwhile, and torch counts no such writes."""
    if not hasattr(torch.amp, "GradScaler"):
        return
    for unscales in (False, True):
        model = new_model()
        optimizer = wrap(sgd(model.parameters()), model, wait="step")
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        for number, (x, y) in enumerate(batches()[:STEPS]):
            optimizer.zero_grad()
            scaler.scale(loss_of(model, mine(x), mine(y))).backward()
            if number == 2:
                refused_to_scale(scaler, optimizer, unscales)
                continue
            optimizer.synchronize()
            scaler.step(optimizer)
            scaler.update()


def refused_to_scale(scaler, optimizer, unscales):
    if unscales:
        scaler.unscale_(optimizer)
    try:
        scaler.step(optimizer)
        raise AssertionError("a scaler stepped on gradients in flight")
    except gradbus.BusyError as error:
        assert "gradient scaler" in str(error) and "synchronize()" in str(error), error
    optimizer.zero_grad()
    scaler.update(512.0)


def case_accumulation_as_in_ddp():
    """Two passes, though one was announced: both are exchanged."""

    def step(model, optimizer, x, y):
        model.zero_grad(set_to_none=True)
        half = len(x) // 2
        for part in (slice(0, half), slice(half, None)) if half < BATCH else halves():
            (loss_of(model, x[part], y[part]) / 2).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()

    def halves():
        """Of each rank's samples, as the ranks take them."""
        firsts = torch.arange(BATCH * gradbus.size()) % BATCH < BATCH // 2
        return firsts, ~firsts

    train(*pair(), step)


def case_losses_over_disjoint_parts():
    def build():
        torch.manual_seed(5)
        return torch.nn.ModuleDict({name: torch.nn.Linear(5, 3) for name in "abc"})

    def step(model, optimizer, x, y):
        optimizer.zero_grad()
        for name in "acb":
            torch.nn.functional.cross_entropy(model[name](x), y).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()

    for small in (64, 1 << 20):  # a bucket for each layer, and one for all
        train(build(), build(), step, small)


def case_gan():
    """The generator's loss fills the discriminator's gradients, too, and modules zero them."""

    def step(model, optimizers, x, y):
        generator, discriminator = model
        noise = x * 0.5
        discriminator.zero_grad(set_to_none=False)
        discriminator(x).mean().sub(1).pow(2).backward()
        discriminator(generator(noise).detach()).mean().pow(2).backward()
        torch.nn.utils.clip_grad_norm_(discriminator.parameters(), 0.3)
        optimizers[1].step()
        generator.zero_grad(set_to_none=True)
        # One term per sample, so that ranks' means are the mean of all.
        (discriminator(generator(noise)) - 1).pow(2).mean().backward()
        optimizers[0].step()

    torch.manual_seed(3)
    models = [
        torch.nn.ModuleList([torch.nn.Linear(5, 5), torch.nn.Linear(5, 1)]) for _ in range(2)
    ]
    models[1].load_state_dict(models[0].state_dict())
    ours = [wrap(sgd(part.parameters()), part) for part in models[0]]
    for x, y in batches()[:STEPS]:
        step(models[0], ours, mine(x), mine(y))
    bits = [p.detach().clone() for p in models[0].parameters()]
    alike = gradbus.allgather_object([b.tolist() for b in bits])
    assert all(other == alike[0] for other in alike)


def case_reentrant_checkpoint_of_a_shared_layer():
    """Each of its uses is a backward() inside of backward() and brings a gradient."""

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(4)
            self.first, self.shared = torch.nn.Linear(5, 6), torch.nn.Linear(6, 6)
            self.last = torch.nn.Linear(6, 3)

        def forward(self, x):
            x = self.first(x)
            for _ in range(3):
                x = checkpoint(lambda h: torch.tanh(self.shared(h)), x, use_reentrant=True)
            return checkpoint(self.last, x, use_reentrant=True)

    def step(model, optimizer, x, y):
        optimizer.zero_grad()
        loss_of(model, x, y).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()

    for small in (64, 1 << 20):
        train(Model(), Model(), step, small)


def case_all_in_reentrant_checkpoints():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(4)
            self.layers = torch.nn.ModuleList([torch.nn.Linear(5, 5) for _ in range(3)])

        def forward(self, x):
            x = x.clone().requires_grad_()
            for layer in self.layers:
                x = checkpoint(layer, x, use_reentrant=True)
            return x[:, :3]

    def step(model, optimizer, x, y):
        optimizer.zero_grad()
        loss_of(model, x, y).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()

    train(Model(), Model(), step)


def case_sharpness_aware():
    """SAM: backward, a step uphill, backward there, the step from where it was."""

    def step(model, optimizer, x, y):
        optimizer.zero_grad()
        loss_of(model, x, y).backward()
        with torch.no_grad():
            uphill = [0.1 * p.grad for p in model.parameters()]
            for parameter, change in zip(model.parameters(), uphill):
                parameter.add_(change)
        model.zero_grad(set_to_none=True)
        loss_of(model, x, y).backward()
        with torch.no_grad():
            for parameter, change in zip(model.parameters(), uphill):
                parameter.sub_(change)
        optimizer.step()

    train(*pair(), step)


def case_gradient_penalty():
    def step(model, optimizer, x, y):
        optimizer.zero_grad()
        x = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        (loss_of(model, x, y) + slope.pow(2).sum(1).mean()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()

    train(*pair(), step)


def case_graph_that_is_kept():
    def step(model, optimizer, x, y):
        optimizer.zero_grad()
        loss = loss_of(model, x, y)
        loss.backward(retain_graph=True)
        (loss * 2).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()

    train(*pair(), step)


def case_a_backward_that_failed():
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            raise ValueError("this batch is bad")

    def step(model, optimizer, x, y):
        optimizer.zero_grad()
        try:
            (loss_of(model, Fails.apply(x.clone().requires_grad_()), y)).backward()
            raise AssertionError("nothing failed")
        except ValueError:
            optimizer.zero_grad()
        loss_of(model, x, y).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()

    train(*pair(), step)


def case_announced_passes():
    """The last of three exchanges; a shorter end needs synchronize() before clipping, and says so."""
    model, alone = pair()
    optimizer = wrap(sgd(model.parameters()), model, backward_passes_per_step=3)
    reference = sgd(alone.parameters())
    for passes in (3, 2, 3):
        optimizer.zero_grad()
        reference.zero_grad()
        for x, y in batches()[:passes]:
            loss_of(model, mine(x), mine(y)).backward()
            loss_of(alone, x, y).backward()
        if passes < 3:
            optimizer.synchronize()
        for each in (model, alone):
            torch.nn.utils.clip_grad_norm_(each.parameters(), 0.1)
        optimizer.step()
        reference.step()
    assert_same(model, alone)
    optimizer.zero_grad()
    x, y = batches()[0]
    loss_of(model, mine(x), mine(y)).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    try:
        optimizer.step()
        raise AssertionError("ranks have clipped gradients of their own")
    except gradbus.BusyError as error:
        assert "1 of backward_passes_per_step=3" in str(error) and "synchronize()" in str(error)
    optimizer.zero_grad()


def case_sum_is_not_added_twice():
    model = new_model()
    optimizer = wrap(sgd(model.parameters()), model, op=gradbus.Sum)
    x, y = batches()[0]
    loss_of(model, mine(x), mine(y)).backward()
    try:
        loss_of(model, mine(x), mine(y)).backward()
        raise AssertionError("a sum was summed again")
    except gradbus.BusyError as error:
        assert "sum over all ranks" in str(error), error
    optimizer.zero_grad()


def case_wait_in_step():
    """The old way: a gradient that was changed in flight is refused, after synchronize() it is not."""

    def step(model, optimizer, x, y):
        optimizer.zero_grad()
        (30 * loss_of(model, x, y)).backward()
        if hasattr(optimizer, "synchronize"):
            optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()

    ours, alone = pair()
    optimizer = wrap(sgd(ours.parameters()), ours, bucket_bytes=300, wait="step")
    reference = sgd(alone.parameters())
    for x, y in batches()[:STEPS]:
        step(ours, optimizer, mine(x), mine(y))
        step(alone, reference, x, y)
    assert_same(ours, alone, tolerance=1e-5)
    for change in (
        lambda: torch.nn.utils.clip_grad_norm_(ours.parameters(), 0.5),
        lambda: setattr(ours[0].weight, "grad", ours[0].weight.grad * 2),
        lambda: torch._foreach_mul_([p.grad for p in ours.parameters()], 0.5),
    ):
        optimizer.zero_grad()
        x, y = batches()[0]
        loss_of(ours, mine(x), mine(y)).backward()
        for _ in range(3):  # whose frames come after all of the gradients': those are not in flight any more
            gradbus.barrier()
        change()
        for call in (optimizer.step, optimizer.synchronize):
            try:
                call()
                raise AssertionError("gradients were changed in flight")
            except gradbus.BusyError as error:
                text = str(error)
                assert "call synchronize() first" in text and ".weight'" in text or ".bias'" in text
    optimizer.zero_grad()


def case_a_wait_that_failed():
    """Some buckets' results are there when the wait for another ends in an error: a gradient set then is not used."""
    ours, alone = pair()
    optimizer, reference = wrap(sgd(ours.parameters()), ours, bucket_bytes=300, wait="step"), sgd(alone.parameters())
    buckets = optimizer._gradbus.exchange.buckets
    assert len(buckets) > 1
    for x, y in batches()[:STEPS]:
        optimizer.zero_grad()
        reference.zero_grad()
        loss_of(ours, mine(x), mine(y)).backward()
        loss_of(alone, x, y).backward()
        buckets[-1].wait = fail
        try:
            optimizer.synchronize()
            raise AssertionError("the wait has failed")
        except TimeoutError:
            del buckets[-1].wait
        parameter = buckets[0].slots[0].parameter
        parameter.grad = torch.full_like(parameter, 7)
        optimizer.synchronize()
        with optimizer.skip_synchronize():
            optimizer.step()
        reference.step()
    assert_same(ours, alone, tolerance=1e-5)


def fail():
    raise TimeoutError


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

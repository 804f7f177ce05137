"""A rank: models of which steps use parts. What no rank uses must not move, as in one process.

Momentum, weight decay and Adam's averages would move it if its gradient were zeros instead of None.
"""

import copy
import os
import sys

import gradbus.torch as gradbus
import torch
from optimizer import BATCH, assert_same, mine, wrap

STEPS = 9
LAYERS = 5  # the last one is never used
MAKERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.1),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.02, weight_decay=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.002, momentum=0.9),
}


def batches():
    random = torch.Generator().manual_seed(12)
    count = BATCH * gradbus.size()
    return [
        (torch.randn(count, 5, generator=random, dtype=torch.float64), torch.randint(0, 3, (count,), generator=random))
        for _ in range(STEPS)
    ]


def part_of(rank):
    return slice(rank * BATCH, (rank + 1) * BATCH)


def uses(layer, step, rank):
    """Some layers on no rank, some on one, one on all."""
    if layer == 0:
        return True
    if layer == LAYERS - 1:
        return False
    turn = (layer + step) % 4
    return turn == 0 or (turn == 1 and rank == step % gradbus.size())


def loss_of(layers, step, rank, x, y):
    outputs = [layer(x) for number, layer in enumerate(layers) if uses(number, step, rank)]
    return torch.nn.functional.cross_entropy(sum(outputs), y)


def new_pair(dtype=torch.float64):
    torch.manual_seed(3)
    ours = torch.nn.ModuleList([torch.nn.Linear(5, 3) for _ in range(LAYERS)]).to(dtype)
    return ours, copy.deepcopy(ours)


def backward_alone(alone, step, x, y):
    for rank in range(gradbus.size()):
        (loss_of(alone, step, rank, x[part_of(rank)], y[part_of(rank)]) / gradbus.size()).backward()


def assert_same_states(optimizer, reference):
    """The same parameters have been stepped, and as often."""
    def states(of):
        return [of.state.get(p, {}).keys() for group in of.param_groups for p in group["params"]]

    assert states(optimizer) == states(reference)


def train(make, zero, **options):
    ours, alone = new_pair()
    optimizer, reference = wrap(make(ours.parameters()), ours, bucket_bytes=300, **options), make(alone.parameters())
    for step, (x, y) in enumerate(batches()):
        zero(optimizer, ours)
        loss_of(ours, step, gradbus.rank(), mine(x), mine(y)).backward()
        optimizer.step()
        zero(reference, alone)
        backward_alone(alone, step, x, y)
        reference.step()
    assert_same(ours, alone, tolerance=1e-9)
    assert_same_states(optimizer, reference)


def case_optimizers():
    for make in MAKERS.values():
        train(make, lambda optimizer, _: optimizer.zero_grad())


def case_ways_to_zero():
    """Zeros that the user asks for are gradients, in one process, too; but None stays None."""
    for zero in (
        lambda optimizer, _: optimizer.zero_grad(set_to_none=False),
        lambda _, model: model.zero_grad(),
        lambda _, model: model.zero_grad(set_to_none=False),
        lambda optimizer, model: (optimizer.zero_grad(), model.zero_grad(set_to_none=False)),
        lambda optimizer, model: (model.zero_grad(), optimizer.zero_grad(set_to_none=False)),
        lambda optimizer, _: (optimizer.zero_grad(), optimizer.zero_grad(set_to_none=False)),
    ):
        train(MAKERS["sgd"], zero)
    train(MAKERS["adamw"], lambda optimizer, _: optimizer.zero_grad(), wait="step")


def case_sum():
    ours, alone = new_pair()
    make = MAKERS["sgd"]
    optimizer, reference = wrap(make(ours.parameters()), ours, op=gradbus.Sum), make(alone.parameters())
    for step, (x, y) in enumerate(batches()):
        optimizer.zero_grad()
        (loss_of(ours, step, gradbus.rank(), mine(x), mine(y)) / gradbus.size()).backward()
        optimizer.step()
        reference.zero_grad()
        backward_alone(alone, step, x, y)
        reference.step()
    assert_same(ours, alone, tolerance=1e-9)


def case_gradients_that_stay():
    """Without zero_grad() gradients add up: the mean of the last step is a gradient of each rank."""
    ours, alone = new_pair()
    make = MAKERS["sgd"]
    optimizer, reference = wrap(make(ours.parameters()), ours), make(alone.parameters())
    for step, (x, y) in enumerate(batches()):
        loss_of(ours, step, gradbus.rank(), mine(x), mine(y)).backward()
        optimizer.step()
        backward_alone(alone, step, x, y)
        reference.step()
        if step % 3 == 2:
            optimizer.zero_grad()
            reference.zero_grad()
    assert_same(ours, alone, tolerance=1e-9)
    assert ours[-1].weight.grad is None or not ours[-1].weight.grad.any()


def case_accumulation():
    """A layer that only one of two passes uses has a gradient."""
    ours, alone = new_pair()
    make = MAKERS["adamw"]
    optimizer = wrap(make(ours.parameters()), ours, backward_passes_per_step=2)
    reference = make(alone.parameters())
    steps = batches()
    for first in range(0, STEPS - 1, 2):
        optimizer.zero_grad()
        reference.zero_grad()
        for step in (first, first + 1):
            x, y = steps[step]
            loss_of(ours, step, gradbus.rank(), mine(x), mine(y)).backward()
            backward_alone(alone, step, x, y)
        optimizer.step()
        reference.step()
    assert_same(ours, alone, tolerance=1e-9)
    assert_same_states(optimizer, reference)


def case_freezing():
    """A layer is frozen and thawed between steps, with and without a gradient of before."""
    ours, alone = new_pair()
    make = MAKERS["sgd"]
    optimizer, reference = wrap(make(ours.parameters()), ours), make(alone.parameters())
    for step, (x, y) in enumerate(batches()):
        for layers in (ours, alone):
            layers[1].requires_grad_(step % 4 < 2)
            layers[3].requires_grad_(step < 6)
        optimizer.zero_grad()
        loss_of(ours, step, gradbus.rank(), mine(x), mine(y)).backward()
        optimizer.step()
        reference.zero_grad()
        backward_alone(alone, step, x, y)
        reference.step()
    assert_same(ours, alone, tolerance=1e-9)
    assert_same_states(optimizer, reference)


def case_channels_last():
    """Their .grad is a copy in another order."""
    torch.manual_seed(4)
    ours = torch.nn.ModuleList([torch.nn.Conv2d(2, 3, 3) for _ in range(2)]).double()
    ours = ours.to(memory_format=torch.channels_last)
    alone = copy.deepcopy(ours)
    make = MAKERS["sgd"]
    optimizer, reference = wrap(make(ours.parameters()), ours), make(alone.parameters())
    for step in range(6):
        x = torch.randn(gradbus.size(), 2, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(step))
        for stepper, layers, part in ((optimizer, ours, x[gradbus.rank() :][:1]), (reference, alone, x)):
            stepper.zero_grad()
            layers[step % 2 if step < 4 else 0](part).square().mean().backward()
            stepper.step()
    for a, b in zip(ours.parameters(), alone.parameters()):
        assert torch.allclose(a, b, rtol=0, atol=1e-9)


def case_clipping_and_half_precision():
    ours, alone = new_pair(torch.bfloat16)
    make = MAKERS["sgd"]
    optimizer, reference = wrap(make(ours.parameters()), ours), make(alone.parameters())
    for step, (x, y) in enumerate(batches()):
        x = x.bfloat16()
        for stepper, layers in ((optimizer, ours), (reference, alone)):
            stepper.zero_grad()
            if layers is ours:
                loss_of(ours, step, gradbus.rank(), mine(x), mine(y)).backward()
            else:
                backward_alone(alone, step, x, y)
            torch.nn.utils.clip_grad_norm_(layers.parameters(), 0.5)
            stepper.step()
    assert_same(ours.float(), alone.float(), tolerance=0.02)
    assert torch.equal(ours[-1].weight, alone[-1].weight)
    assert_same_states(optimizer, reference)


def main():
    torch.set_num_threads(1)
    gradbus.init()
    halves = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 1)
    for name, case in sorted(globals().items()):
        if name.startswith("case_") and all(word in name for word in sys.argv[1:]):
            if "half" in name and not halves:
                continue
            case()
            print(name, flush=True)
    gradbus.shutdown()
    print("ok")


if __name__ == "__main__":
    assert "GRADBUS_COMPRESSION" not in os.environ
    main()

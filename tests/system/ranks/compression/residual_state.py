"""What compression remembers, through PyTorch: saved, dealt out to other ranks, loaded, rescaled.

    residual_state.py save FOLDER      some steps, then a checkpoint per rank
    residual_state.py warm_up          a warm-up goes on after new buckets and a checkpoint
    residual_state.py load FOLDER N    the checkpoints of N ranks go on with this job's ranks

The loss is linear, so a rank's gradient of a step is known: `gradient_of(rank, step)`.
"""

import pathlib
import sys

import gradbus.torch as gradbus
import torch
from gradbus import InvalidError

SHAPE = (200, 160)  # enough elements to be compressed
STEPS = 3


def gradient_of(rank, step):
    return torch.randn(SHAPE, generator=torch.Generator().manual_seed(100 * step + rank))


def make(compression, lr=1.0, op=gradbus.Sum, **options):
    weight = torch.nn.Parameter(torch.zeros(SHAPE))
    bias = torch.nn.Parameter(torch.zeros(3))
    optimizer = gradbus.DistributedOptimizer(
        torch.optim.SGD([weight, bias], lr=lr),
        [("weight", weight), ("bias", bias)],
        op=op,
        compression=compression,
        **options,
    )
    return weight, bias, optimizer


def step(parameters, gradient):
    weight, bias, optimizer = parameters
    optimizer.zero_grad()
    ((weight * gradient).sum() + bias.sum()).backward()
    optimizer.step()


def total(tensor):
    return gradbus.allreduce(tensor, op=gradbus.Sum)


def residuals(optimizer):
    """Of all ranks, summed."""
    return total(optimizer.compression_state()["residual"]["weight"])


def close(a, b):
    assert torch.allclose(a, b, atol=1e-4), f"off by {(a - b).abs().max()}"


def all_gradients(ranks):
    return sum(gradient_of(rank, number) for number in range(STEPS) for rank in range(ranks))


def save(folder):
    parameters = make("topk:ratio=0.02")
    for number in range(STEPS):
        step(parameters, gradient_of(gradbus.rank(), number))
    weight, _, optimizer = parameters
    state = optimizer.compression_state()
    assert set(state["residual"]) == {"weight"}, "the bias is dense and has no memory"
    close(total(state["residual"]["weight"]) - weight.detach(), all_gradients(gradbus.size()))
    torch.save(state, folder / f"rank{gradbus.rank()}.pt")
    if gradbus.rank() == 0:
        torch.save(weight.detach(), folder / "weight.pt")
    save_whole(folder)
    refused(optimizer, {"residual": {"other": torch.zeros(1)}}, "'other'")
    refused(optimizer, {"residual": {"weight": torch.zeros(1)}}, "shape")
    refused(optimizer, {"rezidual": {}}, "'rezidual'")
    for then in (same, new_schedule, own_checkpoint, resharded_checkpoint, whole_checkpoint):
        follows_the_learning_rate(then)
    takes_a_state_without_a_rate()


def takes_a_state_without_a_rate():
    """Of an earlier version: the rate of its residual is unknown, so nothing is rescaled."""
    parameters = make("topk:ratio=0.02", rescale_residual=True)
    step(parameters, gradient_of(gradbus.rank(), 7))
    state = parameters[2].compression_state()
    rates = state.pop("learning_rate")
    assert rates == {"weight": torch.tensor(1.0, dtype=torch.float64)}, rates
    kept = total(state["residual"]["weight"])
    weight, _, optimizer = parameters = loaded(parameters, lambda optimizer: optimizer.load_compression_state(state))
    before = weight.detach().clone()
    optimizer.param_groups[0]["lr"] = 0.5
    step(parameters, torch.zeros(SHAPE))
    close((before - weight.detach()) / 0.5 + residuals(optimizer), kept)


def refused(optimizer, state, named):
    try:
        optimizer.load_compression_state(state)
    except InvalidError as error:
        assert named in str(error), error
    else:
        raise AssertionError(f"{state} was loaded")


def new_schedule(parameters):
    parameters[2].change_schedule("bytescheduler")
    return parameters


def same(parameters):
    return parameters


def own_checkpoint(parameters):
    saved = parameters[2].compression_state()
    return loaded(parameters, lambda optimizer: optimizer.load_compression_state(saved))


def resharded_checkpoint(parameters):
    every = gradbus.allgather_object(parameters[2].compression_state())
    mine = gradbus.reshard_compression_state(every, gradbus.size(), gradbus.Sum)[gradbus.rank()]
    return loaded(parameters, lambda optimizer: optimizer.load_compression_state(mine))


def whole_checkpoint(parameters):
    saved = gradbus.state(parameters[2]).state_dict()
    return loaded(parameters, lambda optimizer: gradbus.state(optimizer).load_state_dict(saved))


def loaded(parameters, load):
    """In a new optimizer, whose weight is this one."""
    fresh = make("topk:ratio=0.02", rescale_residual=True)
    load(fresh[2])
    with torch.no_grad():
        fresh[0].copy_(parameters[0])
    return fresh


# What is kept for later weighs lr when it is sent: after lr / 2 it must count twice.
def follows_the_learning_rate(then):
    parameters = make("topk:ratio=0.02", rescale_residual=True)
    step(parameters, gradient_of(gradbus.rank(), 7))
    kept = residuals(parameters[2])
    weight, _, optimizer = parameters = then(parameters)
    before = weight.detach().clone()
    optimizer.param_groups[0]["lr"] = 0.5
    step(parameters, torch.zeros(SHAPE))
    sent = before - weight.detach()
    close(sent / 0.5 + residuals(optimizer), 2 * kept)


def load(folder, ranks):
    states = [torch.load(folder / f"rank{rank}.pt") for rank in range(ranks)]
    mine = gradbus.reshard_compression_state(states, gradbus.size(), gradbus.Sum)[gradbus.rank()]
    parameters = make("topk:ratio=0.02")
    weight, _, optimizer = parameters
    optimizer.load_compression_state(mine)
    kept = sum(state["residual"]["weight"] for state in states)
    close(residuals(optimizer), kept)
    # On one node nothing is compressed: the next step sends it all.
    step(parameters, torch.zeros(SHAPE))
    close(residuals(optimizer) - weight.detach(), kept)
    if gradbus.cross_size() == 1:
        close(-weight.detach(), kept)
    load_whole(folder, ranks)


OPS = {"average": gradbus.Average, "sum": gradbus.Sum}


def save_whole(folder):
    """gradbus.state() of an optimizer for each op, and what its parameters still lack."""
    for name, op in OPS.items():
        parameters = make("topk:ratio=0.02", op=op)
        for number in range(STEPS):
            step(parameters, gradient_of(gradbus.rank(), number))
        weight, _, optimizer = parameters
        divisor = gradbus.size() if op == gradbus.Average else 1
        due = all_gradients(gradbus.size()) / divisor + weight.detach()
        saved = gradbus.state(optimizer).state_dict()
        shares = gradbus.allgather_object(optimizer.compression_state())
        if gradbus.rank() == 0:
            torch.save({"state": saved, "due": due, "shares": shares}, folder / f"{name}.pt")


def load_whole(folder, ranks):
    """The parameters move by what they lacked, with any number of ranks and either op."""
    for name, op in OPS.items():
        saved = torch.load(folder / f"{name}.pt")
        weight, _, optimizer = parameters = make("topk:ratio=0.02", op=op)
        gradbus.state(optimizer).load_state_dict(saved["state"] if gradbus.rank() == 0 else {})
        divisor = gradbus.size() if op == gradbus.Average else 1
        close(residuals(optimizer) / divisor, saved["due"])
        step(parameters, torch.zeros(SHAPE))
        close(residuals(optimizer) / divisor - weight.detach(), saved["due"])
        mine = gradbus.reshard_compression_state(saved["shares"], gradbus.size(), op)[gradbus.rank()]
        close(total(mine["residual"]["weight"]) / divisor, saved["due"])


def warm_up():
    """All ranks have one gradient, so the sum has as many elements as each of them sends."""
    spec = "topk:ratio=0.002,warmup=40"  # a quarter in the first ten rounds, a sixteenth in the next ten, ...
    gradient = torch.randn(SHAPE, generator=torch.Generator().manual_seed(1))

    def sent(parameters):
        step(parameters, gradient)
        return int(parameters[0].grad.count_nonzero())

    parameters = make(spec)
    weight, _, optimizer = parameters
    assert sent(parameters) == weight.numel() // 4
    for _ in range(23):
        step(parameters, gradient)
    wanted = weight.numel() // 64
    assert sent(parameters) == wanted
    optimizer.change_schedule("fusion", bucket_bytes=1 << 20)
    assert sent(parameters) == wanted, "new buckets began the warm-up anew"
    saved = gradbus.state(optimizer).state_dict()
    again = make(spec)
    gradbus.state(again[2]).load_state_dict(saved)
    assert sent(again) == wanted, "a checkpoint began the warm-up anew"
    every = gradbus.allgather_object(again[2].compression_state())
    moved = make(spec)
    dealt = gradbus.reshard_compression_state(every[:1], gradbus.size(), gradbus.Sum)
    # Without a residual, all still send the same elements.
    moved[2].load_compression_state({"rounds": dealt[gradbus.rank()]["rounds"]})
    assert sent(moved) == wanted, "other ranks began the warm-up anew"
    only_some = every[0] if gradbus.rank() == gradbus.size() - 1 else {"residual": {}}
    moved[2].load_compression_state(only_some)
    step(moved, gradient)
    without = make(spec)
    without[2].load_compression_state({"residual": {"weight": torch.zeros(SHAPE)}})
    assert sent(without) == weight.numel() // 4, "a state of an earlier version has no rounds"


def main():
    gradbus.init()
    if sys.argv[1] == "warm_up":
        warm_up()
        gradbus.shutdown()
        print("ok")
        return
    folder = pathlib.Path(sys.argv[2])
    if sys.argv[1] == "save":
        save(folder)
    else:
        load(folder, int(sys.argv[3]))
    gradbus.shutdown()
    print("ok")


main()

"""Compressed gradients through parameter-server shards (ps:sync), as one rank sees them.

    ps_sync.py counting          small integers as half floats: every gradient counts exactly once
    ps_sync.py feedback CODEC    what encoding twice leaves out comes later, and does not add up
    ps_sync.py rebuild           buckets stay as they are when new ones would lose what shards keep
    ps_sync.py large STEPS CODEC steps of 16 MiB of gradients; waits to be ended

The loss is linear, so a rank's gradient of a step is known.
"""

import sys
import time

import gradbus.torch as gradbus
import torch

SHAPE = (300, 70)  # enough elements to be compressed
LARGE = (2048, 2048)


def make(compression, shape=SHAPE):
    weight = torch.nn.Parameter(torch.zeros(shape))
    bias = torch.nn.Parameter(torch.zeros(3))
    return weight, bias, gradbus.DistributedOptimizer(
        torch.optim.SGD([weight, bias], lr=1.0), [("weight", weight), ("bias", bias)],
        op=gradbus.Sum, mode="ps:sync", compression=compression,
    )  # fmt: skip


def step(parameters, gradient):
    weight, bias, optimizer = parameters
    optimizer.zero_grad()
    ((weight * gradient).sum() + bias.sum()).backward()
    optimizer.step()


def counting():
    weight, bias, _ = parameters = make("fp16")
    pattern = (torch.arange(weight.numel()) % 97).float().reshape(SHAPE)
    for number in range(5):
        step(parameters, pattern + gradbus.rank() + number)
    ranks = gradbus.size()
    wanted = 5 * ranks * pattern + 5 * sum(range(ranks)) + ranks * sum(range(5))
    assert torch.equal(weight.detach(), -wanted), (weight, wanted)
    assert torch.equal(bias.detach(), torch.full((3,), -5.0 * ranks))


def feedback(codec):
    """Steps and the ranks' residuals lack only the residual of the shards: a few gradients' worth
    after any number of steps, while one encoding's error would add up."""
    weight, _, optimizer = parameters = make(codec)
    gradients = [torch.randn(SHAPE, generator=torch.Generator().manual_seed(rank)) for rank in range(gradbus.size())]
    one = sum(gradients)
    lacking = {}
    for number in range(1, 81):
        step(parameters, gradients[gradbus.rank()])
        if number in (20, 80):
            mine = optimizer.compression_state()["residual"]["weight"]
            kept = gradbus.allreduce(mine, op=gradbus.Sum, name="kept")
            left = number * one + weight.detach() - kept
            lacking[number] = (left.norm() / one.norm()).item()
    print(f"lacking {lacking}")
    assert 0.01 < lacking[80] < 6, lacking
    assert lacking[80] < 2.5 * lacking[20], lacking  # it would be 4 times as much
    everywhere = gradbus.allgather_object(weight.detach().sum().item())
    assert len(set(everywhere)) == 1, everywhere


def rebuild():
    """Backward finishes the parameters in the order of the model, so buckets would be made anew after the first step.

    When gradients are zero and residuals are empty, the parameters have moved by all gradients.
    """
    first, last = (torch.nn.Parameter(torch.zeros(SHAPE)) for _ in range(2))
    optimizer = gradbus.DistributedOptimizer(
        torch.optim.SGD([first, last], lr=1.0), [("first", first), ("last", last)],
        op=gradbus.Sum, mode="ps:sync", compression="topk:ratio=0.2", schedule="ddp",
    )  # fmt: skip
    optimizer.change_schedule("auto")  # nothing is remembered yet
    for number in range(40):
        random = torch.Generator().manual_seed(10 * number + gradbus.rank())
        gradient = torch.randn(SHAPE, generator=random) if number < 5 else torch.zeros(SHAPE)
        optimizer.zero_grad()
        late = (last * gradient).sum()
        ((first * (gradient + 0 * late)).sum() + late).backward()
        optimizer.step()
    seeds = [10 * number + rank for number in range(5) for rank in range(gradbus.size())]
    wanted = sum(torch.randn(SHAPE, generator=torch.Generator().manual_seed(seed)) for seed in seeds)
    for weight in (first, last):
        assert torch.allclose(-weight.detach(), wanted, rtol=0, atol=1e-4), (weight + wanted).norm() / wanted.norm()
    assert "the residual that the shards keep" in optimizer.exchange_plan()["why"], optimizer.exchange_plan()
    try:
        optimizer.change_schedule("bytescheduler")
    except gradbus.InvalidError as error:
        assert "is compressed in mode ps:sync" in str(error), error
    else:
        raise AssertionError("new buckets lose what shards keep")


def large(steps, codec):
    parameters = make(codec, LARGE)
    gradient = torch.randn(LARGE, generator=torch.Generator().manual_seed(gradbus.rank()))
    for _ in range(int(steps)):
        step(parameters, gradient)
    print("stepped", flush=True)
    time.sleep(600)


def main():
    gradbus.init()
    {"counting": counting, "feedback": feedback, "rebuild": rebuild, "large": large}[sys.argv[1]](*sys.argv[2:])
    gradbus.shutdown()
    print("ok")


if __name__ == "__main__":
    main()

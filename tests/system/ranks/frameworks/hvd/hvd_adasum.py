"""A rank: hvd.DistributedOptimizer(op=hvd.Adasum) against the formula, and hvd.start_timeline() on a real job."""

import contextlib
import json
import pathlib
import sys
import time

import gradbus
import gradbus.horovod.torch as hvd
import numpy
import pytest
import torch

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()


def combine(a, b):
    """Maleki et al. 2020, equation 2, of the changes of two ranks, for each tensor."""
    dot, aa, bb = (a * b).sum(), (a * a).sum(), (b * b).sum()
    return (1 - dot / (2 * aa)) * a + (1 - dot / (2 * bb)) * b


def tree(changes):
    """Neighbours first, then pairs of pairs: for 2 and 4 ranks."""
    while len(changes) > 1:
        changes = [combine(*changes[i : i + 2]) for i in range(0, len(changes), 2)]
    return changes[0]


def model():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))


def gradients_of(network, rank, step):
    data = torch.randn(7, 6, generator=torch.Generator().manual_seed(100 * step + rank))
    return torch.autograd.grad(network(data).square().mean(), list(network.parameters()))


def adasum_is_the_formula(passes):
    ours, alone = model(), model()
    optimizer = torch.optim.SGD(ours.parameters(), lr=0.5, momentum=0.9)
    distributed = hvd.DistributedOptimizer(
        optimizer, ours.named_parameters(), op=hvd.Adasum, backward_passes_per_step=passes
    )
    assert distributed is optimizer and isinstance(distributed, torch.optim.SGD)
    velocity = [[numpy.zeros(tuple(p.shape)) for p in alone.parameters()] for _ in range(SIZE)]
    for step in range(4):
        distributed.zero_grad()
        for each in range(passes):
            for parameter, gradient in zip(ours.parameters(), gradients_of(ours, RANK, step * passes + each)):
                parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
        distributed.step()
        sums = [
            [sum(parts) for parts in zip(*(gradients_of(alone, r, step * passes + each) for each in range(passes)))]
            for r in range(SIZE)
        ]
        with torch.no_grad():
            for number, parameter in enumerate(alone.parameters()):
                changes = []
                for rank in range(SIZE):
                    velocity[rank][number] = 0.9 * velocity[rank][number] + sums[rank][number].double().numpy()
                    changes.append(-0.5 * velocity[rank][number])
                parameter += torch.from_numpy(tree(changes)).to(parameter.dtype)
        for mine, one in zip(ours.parameters(), alone.parameters()):
            assert torch.allclose(mine, one, rtol=0, atol=1e-5), (step, (mine - one).abs().max())
    everywhere = hvd.allgather_object([parameter.tolist() for parameter in ours.parameters()])
    assert all(other == everywhere[0] for other in everywhere)
    try:
        with distributed.skip_synchronize():
            raise AssertionError
    except gradbus.InvalidError as error:
        assert "Adasum" in str(error)


def a_scheduler_may_be_older():
    """It has put a wrapper of the plain step into the optimizer."""
    ours = model()
    optimizer = torch.optim.SGD(ours.parameters(), lr=0.5)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    distributed = hvd.DistributedOptimizer(optimizer, ours.named_parameters(), op=hvd.Adasum)
    for step in range(3):
        distributed.zero_grad()
        for parameter, gradient in zip(ours.parameters(), gradients_of(ours, RANK, step)):
            parameter.grad = gradient
        distributed.step()
        scheduler.step()
    everywhere = hvd.allgather_object([parameter.tolist() for parameter in ours.parameters()])
    assert all(other == everywhere[0] for other in everywhere)


def timeline_is_written(file):
    hvd.start_timeline(str(file))
    with pytest.warns(RuntimeWarning, match="already") if RANK == 0 else contextlib.nullcontext():
        hvd.start_timeline(str(file))
    hvd.barrier()
    for _ in range(50):  # spans travel every 50 ms
        hvd.allreduce(torch.ones(1000), name="traced")
        time.sleep(0.02)
    hvd.barrier()
    hvd.stop_timeline()
    if RANK == 0:
        events = json.loads(file.read_text())
        events = events["traceEvents"] if isinstance(events, dict) else events
        assert any("traced" in str(event) for event in events), events[:5]


adasum_is_the_formula(1)
adasum_is_the_formula(2)
a_scheduler_may_be_older()
if len(sys.argv) > 1:
    for part in ("first", "second"):
        timeline_is_written(pathlib.Path(sys.argv[1]) / f"{part}.json")
hvd.barrier()
print("ok")

"""A rank: hvd.join() in other modes than sync. Rank r has STEPS + r batches.

    hvd_join_modes.py delayed         means of one step stay means of one step, and the last rank steps on all of them
    hvd_join_modes.py counted         modes that count steps refuse it at once; those that do not allow it
"""

import sys
import time

import gradbus
import gradbus.horovod.torch as hvd
import pytest
import torch

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
STEPS = 4


def make(mode, **options):
    weight = torch.nn.Parameter(torch.zeros(8))
    plain = torch.optim.SGD([weight], lr=1.0, **options)
    return weight, hvd.DistributedOptimizer(plain, named_parameters=[("weight", weight)], mode=mode)


def step(weight, optimizer, gradient):
    optimizer.zero_grad()
    (weight * gradient).sum().backward()
    optimizer.step()


def mean_of(number):
    """Gradients are powers of two, so that sums are exact. Ranks without a batch add zeros."""
    return sum(2.0 ** (number % 4) * (rank + 1) for rank in range(SIZE) if number < STEPS + rank) / SIZE


def delayed():
    for delay in (1, 2, 3):
        weight, optimizer = make(f"delayed:k={delay}", momentum=0.5)
        alone = torch.nn.Parameter(torch.zeros(8))
        reference = torch.optim.SGD([alone], lr=1.0, momentum=0.5)
        for _ in range(3):  # epochs
            for number in range(STEPS + RANK):
                step(weight, optimizer, 2.0 ** (number % 4) * (RANK + 1))
            last = hvd.join()
            assert last == SIZE - 1, last
            hvd.broadcast_parameters({"weight": weight.data}, root_rank=last)
            hvd.broadcast_optimizer_state(optimizer, root_rank=last)
            begin = [0.0] * delay  # steps without a result, on which momentum moves
            for gradient in [*begin, *map(mean_of, range(STEPS + SIZE - 1))]:
                alone.grad = torch.full((8,), gradient)
                reference.step()
            assert torch.allclose(weight, alone), (delay, weight, alone)
        assert optimizer.flush() == 0  # nothing is left


def counted():
    # A rank that joins at once: the error does not wait for anybody, and names the mode.
    for mode in ("localsgd:H=2", "diloco:H=3,overlap=1", "gossip:wait=1"):
        weight, optimizer = make(mode)
        for _ in range(3):
            step(weight, optimizer, 1.0)
        begin = time.monotonic()
        with pytest.raises(gradbus.InvalidError, match=rf"join: parameter 'weight' is in mode {mode.split(',')[0]}"):
            hvd.join()
        assert time.monotonic() - begin < 5
        optimizer.flush()
        del optimizer
    weight, optimizer = make("averaging:every=2")
    for _ in range(STEPS + RANK):
        step(weight, optimizer, 1.0)
    assert hvd.join() in range(SIZE)
    optimizer.flush()
    assert len({one[0].item() for one in hvd.allgather_object(weight.detach())}) == 1


{command.__name__: command for command in [delayed, counted]}[sys.argv[1]]()
print("ok")

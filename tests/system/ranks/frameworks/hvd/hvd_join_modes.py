"""A rank: hvd.join() in other modes than sync. Rank r has STEPS + r batches.

    hvd_join_modes.py delayed         means of one step stay means of one step, and the last rank steps on all of them
"""

import sys

import gradbus.horovod.torch as hvd
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


{command.__name__: command for command in [delayed]}[sys.argv[1]]()
print("ok")

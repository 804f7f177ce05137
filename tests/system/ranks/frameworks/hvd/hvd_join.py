"""A rank: hvd.join() with uneven numbers of batches, against the sums that formulas give.

Rank r has STEPS + r batches, so ranks join one after the other and the last rank joins last.
"""

import time
import types

import gradbus
import gradbus.horovod.torch as hvd
import pytest
import torch
from gradbus import _watch
from gradbus.horovod import _joining

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
STEPS = 2


def active(step):
    """Ranks that have a batch of this number, if rank r has STEPS + r."""
    return [rank for rank in range(SIZE) if step < STEPS + rank]


def sums_and_means():
    for step in range(STEPS + RANK):
        ours = torch.arange(5.0) + RANK * step
        total = sum(torch.arange(5.0) + rank * step for rank in active(step))
        assert torch.equal(hvd.allreduce(ours, op=hvd.Sum, name="sum"), total), step
        mean = hvd.allreduce(ours, op=hvd.Average)  # divided by the number of all ranks, as in Horovod
        assert torch.allclose(mean, total / SIZE), (step, mean)
        handles = [hvd.allreduce_async(torch.full((7,), RANK + k, dtype=torch.int64), op=hvd.Sum) for k in range(3)]
        for k, handle in enumerate(handles):
            assert hvd.synchronize(handle).tolist() == [sum(rank + k for rank in active(step))] * 7
        pair = hvd.grouped_allreduce([ours, ours.double()], op=hvd.Sum, name="pair")
        assert torch.equal(pair[0], total) and torch.equal(pair[1], total.double())
    assert hvd.join() == SIZE - 1
    assert hvd.allgather_object(RANK) == list(range(SIZE))  # all are back


def a_model():
    """Rank r trains on STEPS + r batches. The last rank's model is that of one process which sums what there is."""
    torch.manual_seed(1)
    ours, alone = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    alone.load_state_dict(ours.state_dict())
    batches = {(r, s): torch.randn(4, 3, generator=torch.Generator().manual_seed(100 * r + s))
               for r in range(SIZE) for s in range(STEPS + SIZE)}  # fmt: skip
    reference = torch.optim.SGD(alone.parameters(), lr=0.1, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(ours.parameters(), lr=0.1, momentum=0.9), named_parameters=ours.named_parameters()
    )
    for step in range(STEPS + SIZE - 1):
        reference.zero_grad()
        (sum(alone(batches[rank, step]).square().sum() for rank in active(step)) / SIZE).backward()
        reference.step()
        if RANK in active(step):
            optimizer.zero_grad()
            ours(batches[RANK, step]).square().sum().backward()
            optimizer.step()
    last = hvd.join()
    assert last == SIZE - 1
    hvd.broadcast_parameters(ours.state_dict(), root_rank=last)
    for name, found in ours.state_dict().items():
        assert torch.allclose(found, alone.state_dict()[name], atol=1e-6), (name, found)
    ours(batches[RANK, 0]).square().sum().backward()  # all ranks go on together
    optimizer.step()
    assert hvd.join() in range(SIZE)


def gradients_that_no_step_has_used():
    """A discriminator also gets gradients from the generator's backward(), which the next zero_grad() drops."""
    torch.manual_seed(1)
    one, other = torch.nn.Linear(3, 2), torch.nn.Linear(2, 1)
    optimizers = [
        hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(prefix=word))
        for word, model in (("one", one), ("other", other))
    ]
    for step in range(STEPS + RANK):
        for optimizer in optimizers:
            optimizer.zero_grad()
            other(one(torch.full((4, 3), RANK + step + 1.0))).sum().backward()
            optimizer.step()
    last = hvd.join()
    assert last == SIZE - 1, last
    for model in (one, other):
        hvd.broadcast_parameters(model.state_dict(), root_rank=last)


def a_step_that_is_left_out(**options):
    """The last one before a rank joins, for example because its loss is not finite. Other ranks step on the mean."""
    weight, unused = torch.nn.Parameter(torch.zeros(4)), torch.nn.Parameter(torch.zeros(1))
    plain = torch.optim.SGD([weight, unused], lr=1.0)
    optimizer = hvd.DistributedOptimizer(plain, [("weight", weight), ("unused", unused)], **options)
    for step in range(STEPS + RANK):
        optimizer.zero_grad()
        (weight * 2.0**step).sum().backward()
        if step < STEPS + RANK - 1 or RANK == SIZE - 1:
            optimizer.step()
    last = hvd.join()
    moved = sum(2.0**step * len(active(step)) / SIZE for step in range(STEPS + SIZE - 1))
    assert RANK != last or torch.allclose(weight, torch.full((4,), -moved)), (weight, moved)
    assert hvd.join() in range(SIZE)


def a_long_wait():
    """The last rank makes steps for longer than the limit of one operation, by a clock that counts meetings."""
    real, watcher = _joining.time, _watch.watcher
    limit_s = watcher.session.op_timeout_ms / 1000
    if RANK == SIZE - 1:
        for _ in range(12):
            time.sleep(0.05)  # the others wait
            hvd.allreduce(torch.ones(1), name="long")
    else:
        _joining.time = types.SimpleNamespace(monotonic=lambda: 0.4 * limit_s * watcher._meetings, time=time.time)
    hvd.join()
    _joining.time = real


def what_cannot_do_without_a_rank(call):
    if RANK > 0:
        with pytest.raises(gradbus.MismatchError, match=r"rank 0 has called join\(\)"):
            call()
    hvd.join()
    assert hvd.allgather_object(RANK) == list(range(SIZE))


def what_is_waited_for_later():
    """The error comes also if the operation ended long before, or after this rank's own join."""
    if RANK > 0:
        handle = hvd.allgather_async(torch.ones(2, 3), name="later")
        for _ in range(3):  # rank 0 takes part in each after a meeting, and that ends the all-gather as well
            assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == SIZE - 1
        with pytest.raises(gradbus.MismatchError, match=r"rank 0 has called join\(\)"):
            hvd.synchronize(handle)
        handle = hvd.allgather_async(torch.ones(2, 3), name="later")
    hvd.join()
    if RANK > 0:
        with pytest.raises(gradbus.MismatchError, match=r"rank 0 has called join\(\)"):
            hvd.synchronize(handle)
    assert hvd.allgather_object(RANK) == list(range(SIZE))


sums_and_means()
a_model()
gradients_that_no_step_has_used()
a_step_that_is_left_out()
a_step_that_is_left_out(wait="step", bucket_bytes=16)  # the bucket of the unused parameter is not started
if SIZE > 1:
    a_step_that_is_left_out(mode="delayed:k=1")
    what_cannot_do_without_a_rank(lambda: hvd.allgather(torch.ones(2, 3)))
    what_cannot_do_without_a_rank(lambda: hvd.allgather(torch.ones(2, 3)))  # the first one is over on all ranks
    what_cannot_do_without_a_rank(lambda: hvd.broadcast(torch.ones(2), 1, name="b"))
    what_cannot_do_without_a_rank(lambda: hvd.alltoall(torch.ones(SIZE)))
    what_cannot_do_without_a_rank(lambda: hvd.reducescatter(torch.ones(SIZE)))
    what_is_waited_for_later()
    a_long_wait()
    if RANK == 0:  # a slow rank is no rank that joined
        time.sleep(0.2)
    assert hvd.allgather(torch.tensor([RANK])).tolist() == list(range(SIZE))
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == SIZE
sums_and_means()
print("ok")

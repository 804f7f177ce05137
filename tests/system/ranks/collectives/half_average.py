"""Averages and scaled sums of f16, compared with NumPy in float64. The argument: how many agents the job has."""

import sys

import gradbus
import numpy
import torch
from gradbus._session import current

F16 = 3
AGENTS = int(sys.argv[1])
COUNT = 70_003


def inputs(rank, kind):
    draw = numpy.random.default_rng([rank, len(kind)])
    if kind == "large":
        return numpy.full(COUNT, 40_000, "f2")
    if kind == "largest":
        return numpy.full(COUNT, 65_400, "f2")  # shares are rounded: above it a sum of them may pass the limit
    if kind == "cancels":  # its mean is small, the sum of some ranks is not
        return (numpy.full(COUNT, 60_000) * (1 if rank % 2 == 0 else -1)).astype("f2")
    if kind == "small":
        return numpy.full(COUNT, 1e-4, "f2")
    if kind == "tiny":
        return numpy.full(COUNT, 6e-8, "f2")
    return draw.normal(size=COUNT).astype("f2")


def close(found, wanted, largest, what):
    """Each node rounds once, and so does each sum of two nodes: half a unit of the largest number that was rounded."""
    found = found.astype("f8")
    assert numpy.isfinite(found).all(), (what, found[:4], wanted[:4])
    bound = 2 * AGENTS * 2.0**-25 + AGENTS * 2.0**-10 * numpy.maximum(largest, 2.0**-14)
    assert (abs(found - wanted) <= bound).all(), (what, found[:4], wanted[:4], abs(found - wanted).max())


gradbus.init()
rank, size = gradbus.rank(), gradbus.size()
assert gradbus.cross_size() == AGENTS
for kind in ("large", "largest", "cancels", "small", "tiny", "normal"):
    mine = [inputs(r, kind) for r in range(size)]
    exact = numpy.stack(mine).astype("f8")
    mean, largest = exact.mean(axis=0), abs(exact).max(axis=0)
    close(gradbus.allreduce(mine[rank], name="mean"), mean, largest, kind)
    part = gradbus.reducescatter(mine[rank], name="part", op=gradbus.Average)
    rows = [COUNT // size + (r < COUNT % size) for r in range(size)]
    first = sum(rows[:rank])
    close(part, mean[first : first + rows[rank]], largest[first : first + rows[rank]], kind + " reducescatter")
    scaled = gradbus.allreduce(
        mine[rank], name="scaled", op=gradbus.Sum, prescale_factor=0.5, postscale_factor=0.25 / size
    )
    close(scaled, exact.sum(axis=0) / 8 / size, largest / 4, kind + " scaled")
    (bucket,) = current().register_buckets([(f"b{kind}", COUNT, F16, int(gradbus.Average), "none", 0, "sync")])
    view = torch.from_dlpack(bucket.delay_slots()[0]).numpy()
    view[:] = mine[rank]
    bucket.start()
    bucket.wait()
    close(view, mean, largest, kind + " bucket")
# A sum that no f16 can hold is infinite everywhere, as in one process.
over = gradbus.allreduce(numpy.full(10, 60_000, "f2"), name="over", op=gradbus.Sum)
assert numpy.isinf(over).all() if size > 1 else (over == 60_000).all()
print("ok")

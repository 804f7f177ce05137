"""mpi4py and Gradbus in one script under mpirun: the world, a part of it, errors, and the same by Horovod's names."""

import os
import sys

import gradbus
import numpy as np
import pytest
from gradbus.horovod.common import process_sets
from gradbus.horovod.common.basics import HorovodBasics
from mpi4py import MPI

world = MPI.COMM_WORLD
RANK, SIZE = world.Get_rank(), world.Get_size()


def check(comm, expected):
    """The same sum by both libraries, in the order of the communicator's ranks."""
    gradbus.init(comm=comm, socket=sys.argv[1])
    assert (gradbus.rank(), gradbus.size()) == (comm.Get_rank(), comm.Get_size())
    mine = np.arange(1000.0) * (RANK + 1)
    theirs = np.empty_like(mine)
    for _ in range(3):  # in turn
        ours = gradbus.allreduce(mine, op=gradbus.Sum)
        comm.Allreduce(mine, theirs)
        np.testing.assert_array_equal(ours, theirs)
    assert ours[1] == expected
    gradbus.init(comm=comm)  # changes nothing
    gradbus.barrier()
    gradbus.shutdown()


def total(process_set=gradbus.global_process_set):
    return gradbus.allreduce(np.ones(3) * (RANK + 1), op=gradbus.Sum, process_set=process_set)[0]


def check_horovod(parity, expected):
    """A job of some ranks, and the sets of a split communicator in a job of all."""
    os.environ["GRADBUS_SOCKET"] = sys.argv[1]
    hvd = HorovodBasics()
    hvd.init(parity)
    assert (hvd.rank(), hvd.size()) == (parity.Get_rank(), parity.Get_size()) and total() == expected
    hvd.shutdown()
    mine = process_sets.ProcessSet(parity)
    hvd.init(comm=world, process_sets=[mine])
    assert mine.ranks == list(range(RANK % 2, SIZE, 2)) and total(mine) == expected and total() == WHOLE
    edge = world.Split(0 if RANK in (0, SIZE - 1) else MPI.UNDEFINED)  # nobody else has a communicator
    ends = process_sets.add_process_set(process_sets.ProcessSet(edge))
    assert ends.included() == bool(edge) and (not edge or total(ends) == 1 + SIZE)
    hvd.shutdown()


WHOLE = SIZE * (SIZE + 1) / 2
check(world, WHOLE)
parity = world.Split(RANK % 2, -RANK)  # in the opposite order
part = sum(rank + 1 for rank in range(SIZE) if rank % 2 == RANK % 2)
check(parity, part)
check_horovod(parity, part)
for wrong, words in ((3, "is no communicator of mpi4py"), (MPI.COMM_NULL, "is the null communicator")):
    with pytest.raises(gradbus.GradbusError, match=words + r".* \| next: "):
        gradbus.init(comm=wrong)
with pytest.raises(gradbus.GradbusError, match="leave rank= out"):
    gradbus.init(comm=world, rank=0)
sys.stdout.write(f"rank {RANK} ok\n")

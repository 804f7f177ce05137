"""mpi4py and Gradbus in one script under mpirun: the world, a part of it, and errors."""

import sys

import gradbus
import numpy as np
import pytest
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


check(world, SIZE * (SIZE + 1) / 2)
parity = world.Split(RANK % 2, -RANK)  # in the opposite order
check(parity, sum(rank + 1 for rank in range(SIZE) if rank % 2 == RANK % 2))
for wrong, words in ((3, "is no communicator of mpi4py"), (MPI.COMM_NULL, "is the null communicator")):
    with pytest.raises(gradbus.GradbusError, match=words + r".* \| next: "):
        gradbus.init(comm=wrong)
with pytest.raises(gradbus.GradbusError, match="leave rank= out"):
    gradbus.init(comm=world, rank=0)
sys.stdout.write(f"rank {RANK} ok\n")

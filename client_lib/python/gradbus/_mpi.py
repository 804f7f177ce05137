"""``init(comm=...)``: the ranks of a communicator of mpi4py become those of a job.

mpi4py is not imported here: whoever has a communicator has imported it. Gradbus sends nothing through MPI later.
"""

from __future__ import annotations

import os
import secrets
from typing import Any, NamedTuple

from ._errors import bad_argument


class Place(NamedTuple):
    """Of this process in a communicator."""

    job: str
    rank: int
    size: int


def is_communicator(comm: Any) -> bool:
    """It looks like one of mpi4py."""
    return all(hasattr(comm, name) for name in ("Get_rank", "Get_size", "bcast"))


def place_in(comm: Any) -> Place:
    """All processes of the communicator call it. The job's name is the launcher's and a number that rank 0 draws."""
    if not is_communicator(comm):
        raise bad_argument(
            f"init: comm={comm!r} is no communicator of mpi4py", "pass comm=MPI.COMM_WORLD or a part of it, or nothing"
        )
    if not comm:
        raise bad_argument("init: comm is the null communicator", "call init() on members of the communicator only")
    name = f"mpi-{os.environ.get('GRADBUS_JOB', 'job')[:40]}-{secrets.token_hex(8)}"
    return Place(comm.bcast(name, root=0), comm.Get_rank(), comm.Get_size())

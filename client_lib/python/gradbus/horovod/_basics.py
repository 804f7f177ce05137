"""What all front ends share: init(), and questions about the installation. What Gradbus lacks is refused here.

This module imports no framework.
"""

from __future__ import annotations

import collections
import hashlib
import os
from collections.abc import Iterable, Sequence
from typing import Any

from .. import _init, _session
from .._api import barrier
from .._errors import bad_argument
from .._mpi import is_communicator
from .._objects import allgather_int
from .._ops import whole_number
from .._process_sets import ProcessSet, add_process_set
from .._session import current, is_initialized, shutdown
from ._join import MakeZeros, make_join_possible
from ._joining import Rounds
from ._process_sets import add_process_set as add_sorted_set
from ._process_sets import sorted_set
from ._timeline import start_from_environment

_places: list[tuple[int, int]] = []  # of all ranks: the node's number, and the rank's number there


Sets = Sequence[ProcessSet | Sequence[int]] | str | None
Comm = Any  # ranks, a communicator of mpi4py, or None


def init_with(zeros: MakeZeros | None, comm: Comm, process_sets: Sets) -> None:
    """init() of the front ends.

    Args:
        zeros: makes the array of a rank that has joined. None: the framework has no join().
        comm: ranks of the launcher's world that make this job; None means all. All processes of the world must
            call init(), with disjoint lists if they make several jobs. Or a communicator of mpi4py, whose ranks make
            the job.
        process_sets: sets to add at once, the same on every rank. "dynamic" changes nothing: sets can always be added.

    A second call changes nothing. Raises InvalidError on a rank that is not in ``comm``, and what gradbus.init()
    raises.
    """
    if is_initialized():
        return
    limit = _limit_of_stalls()
    given = [sorted_set(one) for one in _listed(process_sets)]
    of_communicators = [one for one in given if getattr(one, "mpi_comm", None) is not None]
    sets = _different([one for one in given if one not in of_communicators])
    if is_communicator(comm):
        _init.init(comm=comm, process_sets=sets, op_timeout=limit)
    elif (members := _members_of(comm)) is None:
        _init.init(process_sets=sets, op_timeout=limit)
    else:
        _join_some(members, sets, limit)
    for one in of_communicators:
        add_sorted_set(one)
    rounds: list[Rounds] = []  # they outlive a session that elastic training replaces

    def prepare() -> None:
        session = current()
        packed = allgather_int(session.cross_rank << 32 | session.local_rank, name="horovod/places")
        _places[:] = [(place >> 32, place & 0xFFFFFFFF) for place in packed]
        if zeros is not None:
            make_join_possible(zeros, rounds)

    _init.do_in_each_session(prepare)
    start_from_environment()


def _members_of(comm: Comm) -> list[int] | None:
    """None: all ranks."""
    if comm is None:
        return None
    numbers = [whole_number(rank) for rank in comm] if isinstance(comm, Iterable) else [None]
    members = [number for number in numbers if number is not None]
    if len(members) != len(numbers) or len(set(members)) != len(members):
        raise bad_argument(f"init: comm={comm!r} is no list of different ranks",
                           "pass ranks or a communicator of mpi4py, or leave comm out")  # fmt: skip
    return members or None


def _listed(process_sets: Sets) -> list[ProcessSet | Sequence[int]]:
    if process_sets is None or (isinstance(process_sets, str) and process_sets.lower() == "dynamic"):
        return []
    if isinstance(process_sets, Iterable) and not isinstance(process_sets, str):
        return list(process_sets)
    raise bad_argument(f"init: process_sets={process_sets!r} is no list", "pass a list of hvd.ProcessSet")


def _different(sets: list[ProcessSet]) -> list[ProcessSet]:
    """The sets. Two of the same ranks are refused before the job is joined, so a script may call init() again."""
    known = [sorted(one.ranks) for one in sets]
    twice = next((ranks for number, ranks in enumerate(known) if ranks in known[:number]), None)
    if twice is not None:
        raise bad_argument(f"init: process_sets= has two sets of the ranks {twice}", "pass each set once")
    return sets


def _limit_of_stalls() -> float | None:
    """Seconds after which a wait fails, by Horovod's variable. None: by Gradbus's variable or default."""
    given = os.environ.get("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "").strip()
    if not given or os.environ.get("GRADBUS_OP_TIMEOUT") or os.environ.get("HOROVOD_STALL_CHECK_DISABLE", "0") != "0":
        return None
    if not given.isdigit():
        raise bad_argument(
            f"init: HOROVOD_STALL_SHUTDOWN_TIME_SECONDS={given[:40]!r} is no number of seconds",
            "set a whole number, or leave it out",
        )
    return float(given) or None


def _join_some(members: list[int], sets: list[ProcessSet], limit: float | None) -> None:
    """A job of some ranks only. The launcher's world meets first: it has the numbers and the name of the job."""
    _init.init(op_timeout=limit)
    world = current()
    if members == list(range(world.size)):
        for one in sets:
            add_process_set(one)
        return
    rank, size, job = world.rank, world.size, world.job
    barrier()  # nobody leaves while others still join
    shutdown()
    if rank not in members or max(members) >= size:
        raise bad_argument(
            f"init: rank {rank} of {size} cannot make a job of the ranks {members}",
            "pass lists that have this rank, and ranks below the launcher's size only",
        )
    name = hashlib.sha256(f"{job} {members}".encode()).hexdigest()[:24]
    _init.init(job=f"ranks-{name}", rank=members.index(rank), size=len(members), process_sets=sets,
               op_timeout=limit)  # fmt: skip


def is_homogeneous() -> bool:
    """Whether all nodes have the same number of ranks. Raises ClosedError before init()."""
    current()
    if not _places:
        raise bad_argument("is_homogeneous: the nodes were not counted", "call hvd.init() instead of gradbus.init()")
    ranks_of = collections.Counter(node for node, _ in _places)
    return len(set(ranks_of.values())) == 1


def _nodes_with_this_local_rank() -> list[int]:
    session = current()
    return sorted(node for node, number in _places if number == session.local_rank)


def cross_size() -> int:
    """How many nodes have a rank with this one's ``local_rank()``: all of them if they have equal numbers of ranks."""
    return len(_nodes_with_this_local_rank()) or _session.cross_size()


def cross_rank() -> int:
    """This node's number among those that cross_size() counts, from 0."""
    nodes = _nodes_with_this_local_rank()
    return nodes.index(_session.cross_rank()) if nodes else _session.cross_rank()


def mpi_built() -> bool:
    """False: Gradbus uses no MPI."""
    return False


def mpi_enabled() -> bool:
    """False: Gradbus uses no MPI."""
    return False


def mpi_threads_supported() -> bool:
    """Raises InvalidError, as Horovod does without MPI."""
    raise bad_argument("mpi_threads_supported: Gradbus uses no MPI", "ask hvd.mpi_enabled() first")


def gloo_built() -> bool:
    """False: Gradbus has its own transports."""
    return False


def gloo_enabled() -> bool:
    """False: Gradbus has its own transports."""
    return False


def nccl_built() -> int:
    """0: ranks do not use NCCL. Agents may load it at run time (docs/how-to/use-nccl.md)."""
    return 0


def ddl_built() -> bool:
    """False: Gradbus has its own transports."""
    return False


def ccl_built() -> bool:
    """False: Gradbus has its own transports."""
    return False


def rocm_built() -> bool:
    """False: Gradbus has not been tested with ROCm."""
    return False

"""``HorovodBasics``: the functions that need no tensor, as methods of one object.

``mpi_ops._basics`` of each front end is one. Scripts and Horovod's own tests call its methods.
"""

from __future__ import annotations

from collections.abc import Callable

from ... import _session
from ..._ops import Adasum, Average, Max, Min, Product, Sum
from .. import _basics, _process_sets, _timeline
from .._basics import Comm, Sets

Init = Callable[[Comm, Sets], None]


class HorovodBasics:
    """Arguments tell where Horovod's library lies. They change nothing here."""

    Average, Sum, Adasum, Min, Max, Product = Average, Sum, Adasum, Min, Max, Product

    def __init__(self, *where: str) -> None:
        self._init: Init = _init_without_framework
        self._cuda_built: Callable[[], bool] = lambda: False

    is_initialized = staticmethod(_session.is_initialized)
    shutdown = staticmethod(_session.shutdown)
    rank = staticmethod(_session.rank)
    size = staticmethod(_session.size)
    local_rank = staticmethod(_session.local_rank)
    local_size = staticmethod(_session.local_size)
    cross_rank = staticmethod(_basics.cross_rank)
    cross_size = staticmethod(_basics.cross_size)
    is_homogeneous = staticmethod(_basics.is_homogeneous)
    start_timeline = staticmethod(_timeline.start_timeline)
    stop_timeline = staticmethod(_timeline.stop_timeline)
    mpi_threads_supported = staticmethod(_basics.mpi_threads_supported)
    mpi_enabled = staticmethod(_basics.mpi_enabled)
    mpi_built = staticmethod(_basics.mpi_built)
    gloo_enabled = staticmethod(_basics.gloo_enabled)
    gloo_built = staticmethod(_basics.gloo_built)
    nccl_built = staticmethod(_basics.nccl_built)
    ddl_built = staticmethod(_basics.ddl_built)
    ccl_built = staticmethod(_basics.ccl_built)
    rocm_built = staticmethod(_basics.rocm_built)
    _get_process_set_ids_and_ranks = staticmethod(_process_sets.sets_in_use)

    def init(self, comm: Comm = None, process_sets: Sets = None) -> None:
        """That of the front end: joins the job and waits until every rank has."""
        self._init(comm, process_sets)

    def cuda_built(self) -> bool:
        """Whether the front end's framework has CUDA."""
        return self._cuda_built()


def _init_without_framework(comm: Comm, process_sets: Sets) -> None:
    _basics.init_with(None, comm, process_sets)


def basics_of(init: Init, cuda_built: Callable[[], bool]) -> HorovodBasics:
    """Those of a front end."""
    basics = HorovodBasics()
    basics._init, basics._cuda_built = init, cuda_built
    return basics

"""What ``gradbus.horovod.keras`` and ``gradbus.horovod.tensorflow.keras`` have in common."""

from ..._api import barrier
from ..._errors import GradbusError as HorovodInternalError
from ..._ops import Adasum, Average, Sum
from ..._process_sets import global_process_set
from ..._session import (
    is_initialized,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
)
from .._basics import (
    ccl_built,
    cross_rank,
    cross_size,
    ddl_built,
    gloo_built,
    gloo_enabled,
    is_homogeneous,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rocm_built,
)
from .._launch import run
from .._process_sets import ProcessSet, add_process_set, remove_process_set
from .._timeline import start_timeline, stop_timeline
from ._basics import cuda_built, init
from ._optimizer import PartialDistributedOptimizer, load_model
from ._values import allgather, allreduce, broadcast, broadcast_global_variables, broadcast_variables, reducescatter
from .compression import Compression

__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "HorovodInternalError",
    "PartialDistributedOptimizer",
    "ProcessSet",
    "Sum",
    "add_process_set",
    "allgather",
    "allreduce",
    "barrier",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_variables",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "load_model",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "reducescatter",
    "remove_process_set",
    "rocm_built",
    "run",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]

"""The interface of ``horovod.torch`` 0.28 on Gradbus. A script changes one line:

    import gradbus.horovod.torch as hvd

Names, arguments and results are those of Horovod. What Gradbus cannot do raises InvalidError, which says what to do
instead (docs/how-to/from-horovod.md). Options of Gradbus that Horovod lacks are in ``gradbus.torch``.
"""

from ..._api import barrier, poll, synchronize
from ..._errors import GradbusError as HorovodInternalError
from ..._objects import allgather_object, broadcast_object
from ..._ops import Adasum, Average, Max, Min, Product, Sum
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
from .._join import join
from .._launch import run
from .._process_sets import ProcessSet, add_process_set, remove_process_set
from .._timeline import start_timeline, stop_timeline
from ..common.util import check_extension
from . import elastic, functions, mpi_ops, optimizer, sync_batch_norm
from ._basics import cuda_built, init
from ._data_movement import (
    allgather,
    allgather_async,
    alltoall,
    alltoall_async,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    grouped_allgather,
    grouped_allgather_async,
    sparse_allreduce_async,
)
from ._optimizer import DistributedOptimizer
from ._parameters import broadcast_optimizer_state, broadcast_parameters
from ._reductions import (
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    grouped_reducescatter,
    grouped_reducescatter_async,
    reducescatter,
    reducescatter_async,
)
from ._sync_batch_norm import SyncBatchNorm
from .compression import Compression

__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "DistributedOptimizer",
    "HorovodInternalError",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "SyncBatchNorm",
    "add_process_set",
    "allgather",
    "allgather_async",
    "allgather_object",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "ccl_built",
    "check_extension",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "elastic",
    "functions",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_ops",
    "mpi_threads_supported",
    "nccl_built",
    "optimizer",
    "poll",
    "rank",
    "reducescatter",
    "reducescatter_async",
    "remove_process_set",
    "rocm_built",
    "run",
    "shutdown",
    "size",
    "sparse_allreduce_async",
    "start_timeline",
    "stop_timeline",
    "sync_batch_norm",
    "synchronize",
]

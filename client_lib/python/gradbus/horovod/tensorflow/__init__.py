"""The interface of ``horovod.tensorflow`` 0.28 on Gradbus. A script changes one line:

    import gradbus.horovod.tensorflow as hvd

Names, arguments and results are those of Horovod. What Gradbus cannot do raises InvalidError, which says what to do
instead (docs/how-to/from-horovod.md). Options of Gradbus that Horovod lacks are in ``gradbus.tensorflow``.
"""

from ..._api import barrier
from ..._errors import GradbusError as HorovodInternalError
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
from ...tensorflow import BroadcastGlobalVariablesHook
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
from . import elastic
from ._basics import (
    cuda_built,
    init,
    join,
    local_rank_op,
    local_size_op,
    process_set_included_op,
    rank_op,
    size_op,
)
from ._batch_norm import SyncBatchNormalization
from ._gradients import (
    DistributedGradientTape,
    DistributedOptimizer,
    PartialDistributedGradientTape,
)
from ._operations import (
    allgather,
    allreduce,
    alltoall,
    broadcast,
    grouped_allgather,
    grouped_allreduce,
    grouped_reducescatter,
    reducescatter,
)
from ._variables import (
    allgather_object,
    broadcast_,
    broadcast_global_variables,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
)
from .compression import Compression

__all__ = [
    "Adasum",
    "Average",
    "BroadcastGlobalVariablesHook",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "HorovodInternalError",
    "Max",
    "Min",
    "PartialDistributedGradientTape",
    "ProcessSet",
    "Product",
    "Sum",
    "SyncBatchNormalization",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "elastic",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_rank_op",
    "local_size",
    "local_size_op",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "process_set_included_op",
    "rank",
    "rank_op",
    "reducescatter",
    "remove_process_set",
    "rocm_built",
    "run",
    "shutdown",
    "size",
    "size_op",
    "start_timeline",
    "stop_timeline",
]

"""The operations, with the names that they have in ``horovod.tensorflow.mpi_ops``."""

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
from .._process_sets import ProcessSet, add_process_set, remove_process_set
from .._timeline import start_timeline, stop_timeline
from ..common.basics import basics_of
from ..common.util import get_average_backwards_compatibility_fun
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
from ._variables import broadcast_

_basics = basics_of(init, cuda_built)
handle_average_backwards_compatibility = get_average_backwards_compatibility_fun(_basics)


def check_num_rank_power_of_2(num_rank: int) -> None:
    """Does nothing: Adasum takes any number of ranks."""


__all__ = [
    "Adasum",
    "Average",
    "HorovodInternalError",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "allgather",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_",
    "ccl_built",
    "check_num_rank_power_of_2",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "handle_average_backwards_compatibility",
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
    "shutdown",
    "size",
    "size_op",
    "start_timeline",
    "stop_timeline",
]

"""Gradbus: a gradient bus for distributed deep learning.

    import gradbus
    gradbus.init()
    mean = gradbus.allreduce(numpy_array_or_torch_tensor)

This module needs no framework. ``gradbus.torch`` has the distributed optimizer for PyTorch.
"""

import sys
from typing import TYPE_CHECKING

from . import _core, elastic
from ._api import barrier, poll, synchronize, unregister
from ._data_movement import (
    allgather_async,
    alltoall_async,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    gather_async,
    grouped_allgather_async,
    scatter_async,
)
from ._differentiable import (
    allgather,
    allreduce,
    alltoall,
    broadcast,
    gather,
    grouped_allgather,
    grouped_allreduce,
    grouped_reducescatter,
    reduce,
    reducescatter,
    scatter,
)
from ._errors import (
    BusyError,
    ClosedError,
    Code,
    CorruptError,
    ExhaustedError,
    GradbusError,
    InternalError,
    InvalidError,
    MismatchError,
    PeerLostError,
    PermissionError,
    TimeoutError,
    UnavailableError,
    VersionSkewError,
)
from ._handles import Handle
from ._init import init
from ._objects import allgather_object, broadcast_object
from ._ops import (
    Adasum,
    Average,
    BitAnd,
    BitOr,
    Compression,
    Max,
    Min,
    Product,
    ReduceOp,
    Sum,
)
from ._optimizers import flush, staleness
from ._process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)
from ._reductions import (
    allreduce_,
    allreduce_async,
    allreduce_async_,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    grouped_reducescatter_async,
    reduce_async,
    reducescatter_async,
)
from ._session import (
    cross_rank,
    cross_size,
    is_initialized,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
)

__version__ = _core.version

__all__ = [
    "Adasum",
    "Average",
    "BitAnd",
    "BitOr",
    "BusyError",
    "ClosedError",
    "Code",
    "Compression",
    "CorruptError",
    "ExhaustedError",
    "GradbusError",
    "Handle",
    "InternalError",
    "InvalidError",
    "Max",
    "Min",
    "MismatchError",
    "PeerLostError",
    "PermissionError",
    "ProcessSet",
    "Product",
    "ReduceOp",
    "Sum",
    "TimeoutError",
    "UnavailableError",
    "VersionSkewError",
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
    "cross_rank",
    "cross_size",
    "elastic",
    "flush",
    "gather",
    "gather_async",
    "global_process_set",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "poll",
    "rank",
    "reduce",
    "reduce_async",
    "reducescatter",
    "reducescatter_async",
    "remove_process_set",
    "scatter",
    "scatter_async",
    "shutdown",
    "size",
    "staleness",
    "synchronize",
    "unregister",
]


if not TYPE_CHECKING:  # for a type checker it would mean that every name is there

    def __getattr__(name: str):
        """Says where DistributedOptimizer is. This module itself must not import PyTorch."""
        raise AttributeError(
            f"module 'gradbus' has no attribute {name!r}; names for PyTorch, like DistributedOptimizer, are in "
            "gradbus.torch: use `import gradbus.torch as gradbus`",
            name=name,
            obj=sys.modules[__name__],
        )

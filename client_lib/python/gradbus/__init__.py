"""Gradbus: a gradient bus for distributed deep learning.

    import gradbus
    gradbus.init()
    mean = gradbus.allreduce(numpy_array_or_torch_tensor)

This module needs no framework. ``gradbus.torch`` has the distributed optimizer for PyTorch.
"""

from . import _core
from ._api import (
    Average,
    ReduceOp,
    Sum,
    allgather,
    allgather_async,
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    barrier,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    poll,
    synchronize,
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
from ._objects import allgather_object, broadcast_object
from ._session import (
    cross_rank,
    cross_size,
    init,
    is_initialized,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
)

__version__ = _core.version

__all__ = [
    "Average",
    "BusyError",
    "ClosedError",
    "Code",
    "CorruptError",
    "ExhaustedError",
    "GradbusError",
    "Handle",
    "InternalError",
    "InvalidError",
    "MismatchError",
    "PeerLostError",
    "PermissionError",
    "ReduceOp",
    "Sum",
    "TimeoutError",
    "UnavailableError",
    "VersionSkewError",
    "allgather",
    "allgather_async",
    "allgather_object",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "broadcast_object",
    "cross_rank",
    "cross_size",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "poll",
    "rank",
    "shutdown",
    "size",
    "synchronize",
]

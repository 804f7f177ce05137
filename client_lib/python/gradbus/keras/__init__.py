"""Gradbus for Keras 3 on the backends tensorflow, jax and torch.

    import gradbus.keras as gradbus
    gradbus.init()
    model.compile(gradbus.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss, jit_compile=False)
    model.fit(..., callbacks=[gradbus.callbacks.BroadcastGlobalVariablesCallback()])

``jit_compile=False`` is needed for the backend tensorflow only. See docs/how-to/use-keras.md.
"""

from .._api import barrier
from .._differentiable import allgather, allreduce, broadcast
from .._errors import GradbusError
from .._init import init
from .._objects import allgather_object, broadcast_object
from .._ops import Adasum, Average, BitAnd, BitOr, Compression, Max, Min, Product, ReduceOp, Sum
from .._process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from .._session import (
    cross_rank,
    cross_size,
    is_initialized,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
)
from . import callbacks
from ._optimizer import DistributedOptimizer, broadcast_variables, load_model

__all__ = [
    "Adasum",
    "Average",
    "BitAnd",
    "BitOr",
    "Compression",
    "DistributedOptimizer",
    "GradbusError",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "ReduceOp",
    "Sum",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "barrier",
    "broadcast",
    "broadcast_object",
    "broadcast_variables",
    "callbacks",
    "cross_rank",
    "cross_size",
    "global_process_set",
    "init",
    "is_initialized",
    "load_model",
    "local_rank",
    "local_size",
    "rank",
    "remove_process_set",
    "shutdown",
    "size",
]

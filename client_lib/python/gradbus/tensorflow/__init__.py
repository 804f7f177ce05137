"""Gradbus for TensorFlow: collectives, a tape and optimizers that exchange gradients; eager, tf.function, tf.compat.v1.

    import gradbus.tensorflow as gradbus
    gradbus.init()
    gradbus.broadcast_variables(model.variables)
    with tf.GradientTape() as tape:
        loss = ...
    tape = gradbus.DistributedGradientTape(tape)
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

See docs/how-to/use-tensorflow.md, and ``gradbus.keras`` for Keras.
"""

from .._api import barrier
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
from ._gradients import DistributedGradientTape, DistributedOptimizer
from ._operations import allgather, allreduce, alltoall, broadcast, grouped_allreduce, reducescatter
from ._variables import BroadcastGlobalVariablesHook, broadcast_global_variables, broadcast_variables

__all__ = [
    "Adasum",
    "Average",
    "BitAnd",
    "BitOr",
    "BroadcastGlobalVariablesHook",
    "Compression",
    "DistributedGradientTape",
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
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_variables",
    "cross_rank",
    "cross_size",
    "global_process_set",
    "grouped_allreduce",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "rank",
    "reducescatter",
    "remove_process_set",
    "shutdown",
    "size",
]

"""Gradbus for JAX: collectives inside and outside ``jax.jit``, and optimizers of optax that exchange gradients.

    import gradbus.jax as gradbus
    gradbus.init()
    params = gradbus.broadcast_parameters(params)
    optimizer = gradbus.distributed(optax.sgd(0.1))
    # optimizer.update() in a function under jax.jit exchanges the gradients of all ranks

Under ``jax.jit`` operations are calls of XLA on processors. See docs/how-to/use-jax.md.
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
from ._operations import allgather, allreduce, alltoall, broadcast, reducescatter
from ._optimizer import broadcast_parameters, distributed, exchange_gradients, flush

__all__ = [
    "Adasum",
    "Average",
    "BitAnd",
    "BitOr",
    "Compression",
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
    "broadcast_object",
    "broadcast_parameters",
    "cross_rank",
    "cross_size",
    "distributed",
    "exchange_gradients",
    "flush",
    "global_process_set",
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

"""Gradbus for MXNet 1.9.1: a trainer of Gluon that exchanges gradients, and operations on its arrays.

    import gradbus.mxnet as gradbus
    gradbus.init()
    gradbus.broadcast_parameters(net.collect_params())
    trainer = gradbus.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.1})

Operations such as ``gradbus.allreduce`` take MXNet's arrays, too. See docs/how-to/use-mxnet.md.
"""

try:
    import mxnet  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"gradbus.mxnet: {error} | next: pip install mxnet==1.9.1 numpy==1.23.5, with Python 3.11 or earlier"
    ) from error
except AttributeError as error:
    raise ImportError(
        "gradbus.mxnet: MXNet 1.9.1 uses np.bool, which NumPy 1.24 removed | next: pip install numpy==1.23.5"
    ) from error

from .._api import barrier
from .._data_movement import broadcast_
from .._differentiable import (
    allgather,
    allreduce,
    alltoall,
    broadcast,
    grouped_allgather,
    grouped_allreduce,
    reducescatter,
)
from .._errors import GradbusError
from .._init import init
from .._objects import allgather_object, broadcast_object
from .._ops import Adasum, Average, BitAnd, BitOr, Compression, Max, Min, Product, ReduceOp, Sum
from .._process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from .._reductions import allreduce_, grouped_allreduce_
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
from ._trainer import DistributedTrainer, broadcast_parameters

__all__ = [
    "Adasum",
    "Average",
    "BitAnd",
    "BitOr",
    "Compression",
    "DistributedTrainer",
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
    "allreduce_",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_object",
    "broadcast_parameters",
    "cross_rank",
    "cross_size",
    "global_process_set",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_allreduce_",
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

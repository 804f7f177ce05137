"""The interface of ``horovod.mxnet`` 0.28 on Gradbus, for MXNet 1.9.1.

    import gradbus.horovod.mxnet as hvd

Names, arguments and results are those of Horovod. ``priority=`` changes nothing. What Gradbus cannot do raises
InvalidError, which says what to do instead (docs/how-to/from-horovod.md).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from .. import mxnet as _gradbus
from .._api import barrier
from .._errors import GradbusError as HorovodInternalError
from .._errors import bad_argument
from .._gradients import new_prefix
from .._ops import Adasum, Average, Max, Min, Product, Sum
from .._process_sets import ProcessSet as AnySet
from .._process_sets import global_process_set
from .._reductions import grouped_reducescatter as _grouped_reducescatter
from .._session import (
    is_initialized,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
)
from ..mxnet import allgather_object, broadcast_object
from ._arguments import codec_of, mean_or_sum, reduce_op, rows_to_send
from ._basics import (
    Sets,
    ccl_built,
    cross_rank,
    cross_size,
    ddl_built,
    gloo_built,
    gloo_enabled,
    init_with,
    is_homogeneous,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rocm_built,
)
from ._compression import HalfCompressor, NoneCompressor
from ._process_sets import ProcessSet, add_process_set, remove_process_set
from ._timeline import start_timeline, stop_timeline

__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "DistributedOptimizer",
    "DistributedTrainer",
    "HorovodInternalError",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
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
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_reducescatter",
    "init",
    "is_homogeneous",
    "is_initialized",
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
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]

class FP16Compressor(HalfCompressor):
    """Of trainers: gradients travel between nodes as float16. Of arrays: floating-point numbers become float16."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """The array as float16, and its dtype."""
        return (tensor.astype("float16") if np.dtype(tensor.dtype).kind == "f" else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The result in the dtype ``ctx``."""
        return tensor.astype(ctx)


class Compression:
    """Values of ``compression=``: ``none`` and ``fp16``."""

    none = NoneCompressor
    fp16 = FP16Compressor


def cuda_built() -> bool:
    """Whether this MXNet has CUDA."""
    return bool(sys.modules["mxnet"].runtime.Features().is_enabled("CUDA"))


def init(comm: Sequence[int] | None = None, process_sets: Sets = None) -> None:
    """Joins the job and waits until every rank has. Arguments and errors: init_with() of ``_basics.py``."""
    init_with(None, comm, process_sets)


def _reduced(operation: Any) -> Any:
    def reduce(
        tensor: Any,
        average: bool | None = None,
        name: str | None = None,
        priority: int = 0,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: AnySet = global_process_set,
        op: int | None = None,
    ) -> Any:
        """The tensors of all ranks combined: their mean, unless ``average`` or ``op`` says otherwise."""
        chosen = reduce_op(operation.__name__, op, average)
        return operation(tensor, name, chosen, prescale_factor, postscale_factor, process_set)

    return reduce


allreduce = _reduced(_gradbus.allreduce)
allreduce_ = _reduced(_gradbus.allreduce_)
grouped_allreduce = _reduced(_gradbus.grouped_allreduce)
grouped_allreduce_ = _reduced(_gradbus.grouped_allreduce_)


def allgather(
    tensor: Any, name: str | None = None, priority: int = 0, process_set: AnySet = global_process_set
) -> Any:
    """All ranks' tensors joined along axis 0, in the order of ranks. Axis 0 may differ."""
    return _gradbus.allgather(tensor, name, process_set)


def grouped_allgather(
    tensors: Sequence[Any], name: str | None = None, priority: int = 0, process_set: AnySet = global_process_set
) -> list[Any]:
    """allgather() of several arrays, with one completion."""
    return _gradbus.grouped_allgather(tensors, name, process_set)


def reducescatter(
    tensor: Any, op: int = Average, name: str | None = None, priority: int = 0,
    process_set: AnySet = global_process_set, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
) -> Any:  # fmt: skip
    """As allreduce(), and each rank gets its rows of the result; the first ranks get one row more."""
    chosen = _mean_or_sum_of_rows(op)
    return _gradbus.reducescatter(tensor, name, chosen, prescale_factor, postscale_factor, process_set)


def grouped_reducescatter(
    tensors: Sequence[Any], op: int = Average, name: str | None = None, priority: int = 0,
    process_set: AnySet = global_process_set, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
) -> list[Any]:  # fmt: skip
    """reducescatter() of several arrays, with one completion."""
    chosen = _mean_or_sum_of_rows(op)
    return _grouped_reducescatter(tensors, name, chosen, prescale_factor, postscale_factor, process_set)


def _mean_or_sum_of_rows(op: int) -> Any:
    chosen = reduce_op("reducescatter", op)
    if chosen not in (Average, Sum):
        raise bad_argument(f"reducescatter: op={chosen.name.title()} is no mean or sum", "pass hvd.Average or hvd.Sum")
    return chosen


def broadcast(
    tensor: Any, root_rank: int, name: str | None = None, priority: int = 0,
    process_set: AnySet = global_process_set,
) -> Any:  # fmt: skip
    """The root's tensor, as a new one."""
    return _gradbus.broadcast(tensor, root_rank, name, process_set)


def broadcast_(
    tensor: Any, root_rank: int, name: str | None = None, priority: int = 0,
    process_set: AnySet = global_process_set,
) -> Any:  # fmt: skip
    """Overwrites the tensor with the root's values."""
    return _gradbus.broadcast_(tensor, root_rank, name, process_set)


def alltoall(
    tensor: Any, splits: Any = None, name: str | None = None, priority: int = 0,
    process_set: AnySet = global_process_set,
) -> Any:  # fmt: skip
    """Sends rows to each rank, and returns the received ones. With ``splits``, a pair: and how many from each rank."""
    from .._data_movement import alltoall_rows

    received, rows = alltoall_rows(rows_to_send(tensor, splits), splits, name, process_set)
    return received if splits is None else (received, sys.modules["mxnet"].nd.array(rows, dtype="int32"))


def broadcast_parameters(
    params: Any, root_rank: int = 0, prefix: str | None = None, process_set: AnySet = global_process_set
) -> None:
    """Sets all ranks' parameters to the root's: those of ``net.collect_params()``, or a dict of arrays."""
    _gradbus.broadcast_parameters(params, root_rank, process_set, f"{prefix or ''}parameters")


def DistributedTrainer(  # used like a class, hence its name
    params: Any,
    optimizer: Any,
    optimizer_params: Mapping[str, Any] | None = None,
    compression: Any = NoneCompressor,
    gradient_predivide_factor: float = 1.0,
    prefix: str | None = None,
    num_groups: int = 0,
    process_set: AnySet = global_process_set,
    op: int = Average,
) -> Any:
    """A trainer of Gluon whose ``step()`` uses the mean of all ranks' gradients. Groups and prefixes change nothing.

    On ranks outside of the process set it steps alone.
    """
    chosen = mean_or_sum("DistributedTrainer", op, gradient_predivide_factor)
    codec = codec_of("DistributedTrainer", compression)
    if not process_set.included():
        new_prefix("mxnet")  # so that the next trainer has the same number on all ranks
        return sys.modules["mxnet"].gluon.Trainer(params, optimizer, optimizer_params, kvstore=None)
    return _gradbus.DistributedTrainer(params, optimizer, optimizer_params, chosen, codec, process_set)


def DistributedOptimizer(optimizer: Any, *arguments: Any, **options: Any) -> NoReturn:
    """Raises InvalidError: it belongs to Module, the interface before Gluon."""
    raise bad_argument(
        "DistributedOptimizer: Gradbus has the trainer of Gluon only",
        "use hvd.DistributedTrainer(net.collect_params(), ...)",
    )

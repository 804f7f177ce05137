"""The operations, with the names that they have in ``horovod.mxnet.mpi_ops``. ``priority=`` changes nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from ... import mxnet as _gradbus
from ..._api import barrier
from ..._data_movement import alltoall_rows
from ..._differentiable import grouped_reducescatter as _grouped_reducescatter
from ..._errors import GradbusError as HorovodInternalError
from ..._errors import bad_argument
from ..._ops import Adasum, Average, Max, Min, Product, Sum
from ..._process_sets import ProcessSet as AnySet
from ..._process_sets import global_process_set
from ..._session import (
    is_initialized,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
)
from .._arguments import factors, reduce_op, rows_to_send
from .._basics import (
    Comm,
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
from .._process_sets import ProcessSet, add_process_set, remove_process_set
from .._timeline import start_timeline, stop_timeline
from ..common.basics import basics_of

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
    "allreduce_",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_",
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


def cuda_built() -> bool:
    """Whether this MXNet has CUDA."""
    return bool(sys.modules["mxnet"].runtime.Features().is_enabled("CUDA"))


def init(comm: Comm = None, process_sets: Sets = None) -> None:
    """Joins the job and waits until every rank has. Arguments and errors: init_with() of ``../_basics.py``."""
    init_with(None, comm, process_sets)


_basics = basics_of(init, cuda_built)


def allreduce(
    tensor: Any, average: bool | None = None, name: str | None = None, priority: int = 0,
    prescale_factor: float = 1.0, postscale_factor: float = 1.0, process_set: AnySet = global_process_set,
    op: int | None = None,
) -> Any:  # fmt: skip
    """The tensors of all ranks combined: their mean, unless ``average`` or ``op`` says otherwise."""
    chosen = reduce_op("allreduce", op, average)
    return _gradbus.allreduce(tensor, name, chosen, *factors(prescale_factor, postscale_factor), process_set)


def allreduce_(
    tensor: Any, average: bool | None = None, name: str | None = None, priority: int = 0,
    prescale_factor: float = 1.0, postscale_factor: float = 1.0, process_set: AnySet = global_process_set,
    op: int | None = None,
) -> Any:  # fmt: skip
    """As allreduce(), in place. Returns the tensor."""
    chosen = reduce_op("allreduce_", op, average)
    return _gradbus.allreduce_(tensor, name, chosen, *factors(prescale_factor, postscale_factor), process_set)


def grouped_allreduce(
    tensors: Sequence[Any], average: bool | None = None, name: str | None = None, priority: int = 0,
    prescale_factor: float = 1.0, postscale_factor: float = 1.0, process_set: AnySet = global_process_set,
    op: int | None = None,
) -> list[Any]:  # fmt: skip
    """allreduce() of several arrays, with one completion."""
    chosen = reduce_op("grouped_allreduce", op, average)
    return _gradbus.grouped_allreduce(tensors, name, chosen, *factors(prescale_factor, postscale_factor), process_set)


def grouped_allreduce_(
    tensors: Sequence[Any], average: bool | None = None, name: str | None = None, priority: int = 0,
    prescale_factor: float = 1.0, postscale_factor: float = 1.0, process_set: AnySet = global_process_set,
    op: int | None = None,
) -> list[Any]:  # fmt: skip
    """As grouped_allreduce(), in place. Returns the tensors."""
    chosen = reduce_op("grouped_allreduce_", op, average)
    return _gradbus.grouped_allreduce_(tensors, name, chosen, *factors(prescale_factor, postscale_factor), process_set)


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
    return _gradbus.reducescatter(tensor, name, chosen, *factors(prescale_factor, postscale_factor), process_set)


def grouped_reducescatter(
    tensors: Sequence[Any], op: int = Average, name: str | None = None, priority: int = 0,
    process_set: AnySet = global_process_set, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
) -> list[Any]:  # fmt: skip
    """reducescatter() of several arrays, with one completion."""
    chosen = _mean_or_sum_of_rows(op)
    return _grouped_reducescatter(tensors, name, chosen, *factors(prescale_factor, postscale_factor), process_set)


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
    received, rows = alltoall_rows(rows_to_send(tensor, splits), splits, name, process_set)
    return received if splits is None else (received, sys.modules["mxnet"].nd.array(rows, dtype="int32"))

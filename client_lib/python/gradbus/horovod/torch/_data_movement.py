"""Broadcast, all-gather, all-to-all and the all-reduce of sparse tensors, with Horovod's arguments and results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ... import _core, _data_movement, _differentiable
from ..._handles import Handle
from ..._parts import Part, name_in_group, start_one, tensor_list
from ..._process_sets import ProcessSet, global_process_set, session_of
from ...torch import _sparse_sum
from .._arguments import reduce_op, rows_to_send
from .._in_flight import started
from ._gradients import any_needs_gradient, with_mean_gradient, without_gradient

Tensor = torch.Tensor


def broadcast(
    tensor: Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Tensor:
    """The root's tensor, as a new one. ``root_rank`` is a rank of the job, also with a process set.

    The root's gradient is the mean of all ranks' gradients, as in Horovod; the others' are zeros.
    """
    return _differentiable.broadcast(with_mean_gradient(tensor, process_set), root_rank, name, process_set)


def broadcast_async(
    tensor: Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[Tensor]:
    """Starts broadcast()."""
    return started(
        "broadcast", name, process_set,
        lambda: _data_movement.broadcast_async(without_gradient(tensor), root_rank, name, process_set),
    )  # fmt: skip


def broadcast_(
    tensor: Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Tensor:
    """Overwrites the tensor with the root's values and returns it."""
    return _data_movement.broadcast_(tensor, root_rank, name, process_set)


def broadcast_async_(
    tensor: Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[Tensor]:
    """Starts broadcast_()."""
    return started(
        "broadcast", name, process_set,
        lambda: _data_movement.broadcast_async_(tensor, root_rank, name, process_set),
    )  # fmt: skip


def allgather(tensor: Tensor, name: str | None = None, process_set: ProcessSet = global_process_set) -> Tensor:
    """All ranks' tensors joined along axis 0, in the order of ranks. Axis 0 may differ.

    The gradient is the mean of all ranks' gradients of this rank's rows, as in Horovod.
    """
    result: Tensor = _differentiable.allgather(with_mean_gradient(tensor, process_set), name, process_set)
    return result


def allgather_async(
    tensor: Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[Tensor]:
    """Starts allgather()."""
    return started(
        "allgather", name, process_set,
        lambda: _data_movement.allgather_async(without_gradient(tensor), name, process_set),
    )  # fmt: skip


def grouped_allgather(
    tensors: Sequence[Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Tensor]:
    """allgather() of several tensors. They are one operation unless a tensor needs a gradient."""
    given = tensor_list(tensors, "grouped_allgather")
    if any_needs_gradient(given):
        return [allgather(tensor, name_in_group(name, index), process_set) for index, tensor in enumerate(given)]
    return _differentiable.grouped_allgather(given, name, process_set)


def grouped_allgather_async(
    tensors: Sequence[Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[list[Tensor]]:
    """Starts grouped_allgather()."""
    return started(
        "allgather", name, process_set,
        lambda: _data_movement.grouped_allgather_async(without_gradient(tensors), name, process_set),
    )  # fmt: skip


def _received(rows: list[int], splits: Any) -> Tensor:
    """Rows that came from each rank, in the dtype of ``splits`` or as int32."""
    like = splits if isinstance(splits, torch.Tensor) else torch.empty(0, dtype=torch.int32, device="cpu")
    return torch.tensor(rows, dtype=like.dtype, device=like.device)


def alltoall(
    tensor: Tensor, splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Sends ``splits[r]`` rows of axis 0 to each rank r. Returns what all ranks sent to this one.

    With ``splits`` the result is a pair: that tensor, and how many rows came from each rank. Rows after the sum of the
    splits are not sent. Without ``splits``, every rank gets an equal number of rows.
    """
    result = _differentiable.alltoall(rows_to_send(tensor, splits), splits, name, process_set)
    return result if splits is None else (result[0], _received(result[1].tolist(), splits))


def alltoall_async(
    tensor: Tensor, splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[tuple[Tensor, Tensor]]:
    """Starts alltoall(). synchronize() returns the pair, also without ``splits``, as in Horovod."""
    session = session_of(process_set, "alltoall")
    sent = rows_to_send(without_gradient(tensor), splits)
    part = _data_movement.alltoall_part(sent, splits, name, session.size, with_rows=True)

    def finish(operation: _core.Operation, index: int) -> tuple[Tensor, Tensor]:
        result, rows = part.finish(operation, index)
        return result, _received(rows, splits)

    return started("alltoall", name, process_set, lambda: start_one(session, Part(part.request, finish, part.replay)))


def sparse_allreduce_async(
    tensor: Tensor, name: str | None, op: int, process_set: ProcessSet = global_process_set
) -> Callable[[], Tensor]:
    """Starts the sum or the mean of sparse COO tensors. Returns a function that waits and returns the result.

    The result has the entries of all ranks and is not coalesced. Raises InvalidError for a dense tensor and for
    operations other than Sum and Average.
    """
    verb = "sparse_allreduce_async"
    return _sparse_sum.start(verb, tensor, name, reduce_op(verb, op), process_set)

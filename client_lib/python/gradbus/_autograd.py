"""Gradients of the collectives of torch tensors: what the backward pass does is a collective, too.

Imported when a tensor that needs a gradient is passed. Every rank must run backward through what the
collective returned, in the same order: the backward pass of one rank waits for those of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import _data_movement, _reductions
from ._errors import bad_argument
from ._ops import Average, ReduceOp, Sum
from ._process_sets import ProcessSet, session_of


class _Collective(torch.autograd.Function):
    """``run(*tensors)`` gives the results, ``back(*gradients)`` the gradients of the tensors."""

    @staticmethod
    def forward(ctx: Any, run: Callable[..., Any], back: Callable[..., Any], *tensors: Any) -> Any:
        ctx.back = back
        return run(*tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return (None, None, *ctx.back(*gradients))


def _apply(run: Callable[..., Any], back: Callable[..., Any], *tensors: Any) -> Any:
    return _Collective.apply(run, back, *tensors)


def _back_name(name: str | None) -> str | None:
    return None if name is None else f"{name}/backward"


def _check_linear(verb: str, op: int) -> None:
    if op not in (Sum, Average):
        raise bad_argument(
            f"{verb}: {ReduceOp(op).name.title()} has no gradient",
            "use gradbus.Sum or gradbus.Average, or pass the tensor .detach()",
        )


def allreduce(tensor: Any, name: str | None, op: int, **how: Any) -> Any:
    """The gradient is the same all-reduce of the gradients."""

    def back(gradient: Any) -> Any:
        _check_linear("allreduce", op)
        return (_reductions.allreduce(gradient, _back_name(name), op, **how),)

    return _apply(lambda t: _reductions.allreduce(t, name, op, **how), back, tensor)


def grouped_allreduce(tensors: Sequence[Any], name: str | None, op: int, **how: Any) -> list[Any]:
    """As allreduce(), of those tensors that can have gradients."""
    smooth = [tensor.is_floating_point() or tensor.is_complex() for tensor in tensors]

    def back(*gradients: Any) -> Any:
        _check_linear("grouped_allreduce", op)
        given = [gradient for gradient, wanted in zip(gradients, smooth) if wanted]
        reduced = iter(_reductions.grouped_allreduce(given, _back_name(name), op, **how))
        return tuple(next(reduced) if wanted else None for wanted in smooth)

    def run(*given: Any) -> Any:
        return tuple(_reductions.grouped_allreduce(given, name, op, **how))

    return list(_apply(run, back, *tensors))


def reducescatter(
    tensor: Any, name: str | None, op: int, prescale: float, postscale: float, process_set: ProcessSet
) -> Any:
    """The gradient is the all-gather of the shards' gradients."""

    def back(gradient: Any) -> Any:
        _check_linear("reducescatter", op)
        size = session_of(process_set, "reducescatter").size
        scale = prescale * postscale / (size if op == Average else 1)
        whole = _data_movement.allgather(gradient, _back_name(name), process_set)
        return (whole if scale == 1 else whole * scale,)

    return _apply(
        lambda t: _reductions.reducescatter(t, name, op, prescale, postscale, process_set), back, tensor
    )


def allgather(tensor: Any, name: str | None, process_set: ProcessSet) -> Any:
    """The gradient is the sum of all ranks' gradients of this rank's rows."""
    rows: list[int] = []

    def run(given: Any) -> Any:
        result, received = _data_movement.allgather_rows(given, name, process_set)
        rows.extend(received)
        return result

    def back(gradient: Any) -> Any:
        return (_sum_of_own_rows(gradient, rows, _back_name(name), process_set).reshape(tensor.shape),)

    return _apply(run, back, tensor)


def _sum_of_own_rows(
    gradient: Any, rows: Sequence[int], name: str | None, process_set: ProcessSet
) -> Any:
    session = session_of(process_set, "allgather")
    whole, size = sum(rows), session.size
    even = [whole // size + (1 if rank < whole % size else 0) for rank in range(size)]
    if list(rows) == even:
        return _reductions.reducescatter(gradient, name, Sum, process_set=process_set)
    received, _ = _data_movement.alltoall(gradient, list(rows), name, process_set)
    return received.reshape(size, rows[session.rank], *gradient.shape[1:]).sum(0)


def broadcast(tensor: Any, root_rank: int, name: str | None, process_set: ProcessSet) -> Any:
    """The root's gradient is the sum of all ranks' gradients; the others' are zeros."""

    def back(gradient: Any) -> Any:
        total = _reductions.reduce(
            gradient, root_rank, _back_name(name), Sum, process_set=process_set
        )
        return (torch.zeros_like(gradient) if total is None else total,)

    return _apply(
        lambda t: _data_movement.broadcast(t, root_rank, name, process_set), back, tensor
    )


def alltoall(tensor: Any, splits: Any, name: str | None, process_set: ProcessSet) -> Any:
    """The gradient goes the same way back."""
    rows: list[int] = []

    def run(given: Any) -> Any:
        result, received = _data_movement.alltoall_rows(given, splits, name, process_set)
        rows.extend(received)
        return result

    def back(gradient: Any) -> Any:
        returned, _ = _data_movement.alltoall(gradient, rows, _back_name(name), process_set)
        return (returned.reshape(tensor.shape),)

    result = _apply(run, back, tensor)
    return result if splits is None else (result, torch.tensor(rows, dtype=torch.int64))

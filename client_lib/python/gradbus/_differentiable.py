"""The collectives that have a gradient, and their gradients: what the backward pass does is a collective, too.

Every rank must run backward through what the collective returned, in the same order: the backward pass
of one rank waits for those of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ._arrays import needs_gradient
from ._data_movement import (
    allgather_part,
    allgather_rows,
    alltoall_part,
    alltoall_rows,
    broadcast_async,
    gather_part,
    scatter_part,
    start_grouped_allgather,
)
from ._errors import bad_argument
from ._ops import ALL, Average, ReduceOp, Sum
from ._parts import name_in_group, start_one, tensor_list
from ._process_sets import ProcessSet, checked_root, global_process_set, session_of
from ._reduction_arguments import ReductionArguments, allreduce_part, reduce_part, reducescatter_part
from ._reductions import start_grouped_allreduce, start_grouped_reducescatter

T = TypeVar("T")


def _apply_differentiable(run: Callable[..., Any], back: Callable[..., Any], *tensors: Any) -> Any:
    from ._autograd import apply  # which needs torch: there is one where a tensor needs a gradient

    return apply(run, back, *tensors)


def _back_name(name: str | None) -> str | None:
    return None if name is None else f"{name}/backward"


def _is_smooth(tensor: Any) -> bool:
    """Whether a tensor of its dtype can have a gradient."""
    return bool(tensor.is_floating_point() or tensor.is_complex())


def _factor(op: int, prescale: float, postscale: float, size: int) -> float:
    """What a sum or an average multiplies each rank's values by."""
    return prescale * postscale / (size if op == Average else 1)


def _check_linear(verb: str, op: int) -> None:
    if op not in (Sum, Average):
        raise bad_argument(
            f"{verb}: {ReduceOp(op).name.title()} has no gradient",
            "use gradbus.Sum or gradbus.Average, or pass the tensor .detach()",
        )


def allreduce(
    tensor: T,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    compression: str | None = None,
) -> T:
    """The tensors of all ranks combined element by element, as a new tensor of the same shape and
    dtype; all ranks get the same bits.

    ``op``: Sum, Average (integers truncate toward zero), Min, Max (a NaN wins), Product; BitAnd and
    BitOr of integers; Adasum of floats (Maleki et al. 2020); of bool Min, Max, BitAnd and BitOr; of
    complex numbers Sum and Average. Sums and products of integers wrap as NumPy's do, and so does the
    sum that an average divides. Python's numbers and lists of them come back as such; their mean is a
    float. Values are multiplied by ``prescale_factor`` before and by ``postscale_factor`` after,
    integers as float64, truncated toward zero.
    ``name``: operations of one name run in the order in which they were started on each rank.
    ``compression``: how a float32 sum or average travels between nodes, as ``Compression.fp16`` or
    ``"topk:ratio=0.01"``; what it leaves out is added to the next round of the same name, so it needs one.

    Raises InvalidError (dtype, op, device, layout), MismatchError (ranks disagree about size, dtype,
    shape, op or factors), PeerLostError, TimeoutError.

    A torch tensor that needs a gradient gets one: the all-reduce of the result's gradients with the
    same ``op``, Sum or Average. The forms in place and the asynchronous ones have none:
    a backward pass that reaches their results raises InvalidError. Of sparse COO tensors there are sums and
    means: only entries travel, and the result is coalesced.
    """
    if getattr(tensor, "is_sparse", False) is True:
        from .torch._sparse_sum import allreduce as of_sparse

        return of_sparse(  # type: ignore[return-value]
            tensor, name, op, prescale_factor, postscale_factor, process_set, compression)
    if needs_gradient(tensor):
        return _allreduce_with_gradient(  # type: ignore[no-any-return]
            tensor, name, op, prescale_factor=prescale_factor, postscale_factor=postscale_factor,
            process_set=process_set, compression=compression,
        )  # fmt: skip
    how = ReductionArguments("allreduce", process_set, op, prescale_factor, postscale_factor, ALL, compression)
    return start_one(how.session, allreduce_part(how, tensor, name), stays=True).wait()


def _allreduce_with_gradient(tensor: Any, name: str | None, op: int, **how: Any) -> Any:
    """The gradient is the same all-reduce of the gradients."""

    def back(gradient: Any) -> Any:
        _check_linear("allreduce", op)
        return (allreduce(gradient, _back_name(name), op, **how),)

    return _apply_differentiable(lambda t: allreduce(t, name, op, **how), back, tensor)


def grouped_allreduce(
    tensors: Sequence[T],
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    compression: str | None = None,
) -> list[T]:
    """allreduce() of several tensors, of any dtypes and shapes, with one completion."""
    tensors = tensor_list(tensors, "grouped_allreduce")
    if any(needs_gradient(tensor) for tensor in tensors):
        return _grouped_allreduce_with_gradient(
            tensors, name, op, prescale_factor=prescale_factor, postscale_factor=postscale_factor,
            process_set=process_set, compression=compression,
        )  # fmt: skip
    how = ReductionArguments("grouped_allreduce", process_set, op, prescale_factor, postscale_factor, ALL, compression)
    handle = start_grouped_allreduce(allreduce_part, tensors, name, how, True)
    return list(handle.wait())


def _grouped_allreduce_with_gradient(tensors: Sequence[Any], name: str | None, op: int, **how: Any) -> list[Any]:
    """As allreduce(), of those tensors that can have gradients."""
    smooth = [_is_smooth(tensor) for tensor in tensors]

    def back(*gradients: Any) -> Any:
        _check_linear("grouped_allreduce", op)
        given = [gradient for gradient, wanted in zip(gradients, smooth) if wanted]
        reduced = iter(grouped_allreduce(given, _back_name(name), op, **how))
        return tuple(next(reduced) if wanted else None for wanted in smooth)

    def run(*given: Any) -> Any:
        return tuple(grouped_allreduce(given, name, op, **how))

    return list(_apply_differentiable(run, back, *tensors))


def reducescatter(
    tensor: T,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> T:
    """As allreduce(), and each rank gets its rows of the result: axis 0 is cut as evenly as can be,
    the first ranks get one row more. Not for Adasum.

    A tensor of shape (5, 3) gives (2, 3), (2, 3) and (1, 3) on three ranks. A torch tensor that needs
    a gradient gets the all-gather of the shards' gradients, of Sum and Average.
    """
    if needs_gradient(tensor):
        return _reducescatter_with_gradient(  # type: ignore[no-any-return]
            tensor, name, op, prescale_factor, postscale_factor, process_set
        )
    how = ReductionArguments("reducescatter", process_set, op, prescale_factor, postscale_factor)
    return start_one(how.session, reducescatter_part(how, tensor, name), stays=True).wait()


def _reducescatter_with_gradient(
    tensor: Any, name: str | None, op: int, prescale: float, postscale: float, process_set: ProcessSet
) -> Any:
    """The gradient is the all-gather of the shards' gradients."""

    def back(gradient: Any) -> Any:
        _check_linear("reducescatter", op)
        scale = _factor(op, prescale, postscale, session_of(process_set, "reducescatter").size)
        whole = allgather(gradient, _back_name(name), process_set)
        return (whole if scale == 1 else whole * scale,)

    return _apply_differentiable(
        lambda t: reducescatter(t, name, op, prescale, postscale, process_set), back, tensor
    )


def grouped_reducescatter(
    tensors: Sequence[T],
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[T]:
    """reducescatter() of several tensors, with one completion."""
    tensors = tensor_list(tensors, "grouped_reducescatter")
    if any(needs_gradient(tensor) for tensor in tensors):
        return _grouped_reducescatter_with_gradient(
            tensors, name, op, prescale_factor, postscale_factor, process_set
        )
    how = ReductionArguments("grouped_reducescatter", process_set, op, prescale_factor, postscale_factor)
    return list(start_grouped_reducescatter(tensors, name, how, True).wait())


def _grouped_reducescatter_with_gradient(
    tensors: Sequence[Any], name: str | None, op: int, prescale: float, postscale: float, process_set: ProcessSet
) -> list[Any]:
    """As reducescatter(), of those tensors that can have gradients."""
    smooth = [_is_smooth(tensor) for tensor in tensors]

    def back(*gradients: Any) -> Any:
        _check_linear("grouped_reducescatter", op)
        scale = _factor(op, prescale, postscale, session_of(process_set, "grouped_reducescatter").size)
        given = [gradient for gradient, wanted in zip(gradients, smooth) if wanted]
        whole = iter(grouped_allgather(given, _back_name(name), process_set))
        return tuple(next(whole) * scale if wanted else None for wanted in smooth)

    def run(*given: Any) -> Any:
        return tuple(grouped_reducescatter(given, name, op, prescale, postscale, process_set))

    return list(_apply_differentiable(run, back, *tensors))


def reduce(
    tensor: T,
    root_rank: int = 0,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> T | None:
    """As allreduce(), for the root alone: the others get None. Not for Adasum.

    ``root_rank`` is a rank of the job, also with a process set. Where a torch tensor needs a gradient, the
    others get zeros in place of None. They run backward through these, and get the root's gradient.
    """
    if needs_gradient(tensor):
        return _reduce_with_gradient(  # type: ignore[no-any-return]
            tensor, root_rank, name, op, prescale_factor, postscale_factor, process_set
        )
    how = ReductionArguments("reduce", process_set, op, prescale_factor, postscale_factor)
    root = checked_root(root_rank, how.verb, process_set)
    return start_one(how.session, reduce_part(how, tensor, name, root), stays=True).wait()


def _reduce_with_gradient(
    tensor: Any, root_rank: int, name: str | None, op: int, prescale: float, postscale: float, process_set: ProcessSet
) -> Any:
    """The gradient is the broadcast of the root's gradient."""
    import torch

    def run(given: Any) -> Any:
        result = reduce(given, root_rank, name, op, prescale, postscale, process_set)
        return torch.zeros_like(given) if result is None else result

    def back(gradient: Any) -> Any:
        _check_linear("reduce", op)
        scale = _factor(op, prescale, postscale, session_of(process_set, "reduce").size)
        return (broadcast(gradient, root_rank, _back_name(name), process_set) * scale,)

    return _apply_differentiable(run, back, tensor)


def broadcast(
    tensor: T,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> T:
    """The root's tensor, as a new one; `tensor` gives the shape and dtype. Errors: broadcast_().

    Where the tensor needs a gradient, the root gets the sum of all ranks' gradients, the others zeros.
    """
    if needs_gradient(tensor):
        return _broadcast_with_gradient(tensor, root_rank, name, process_set)  # type: ignore[no-any-return]
    return broadcast_async(tensor, root_rank, name, process_set).wait()


def _broadcast_with_gradient(tensor: Any, root_rank: int, name: str | None, process_set: ProcessSet) -> Any:
    """The root's gradient is the sum of all ranks' gradients; the others' are zeros."""
    import torch

    def back(gradient: Any) -> Any:
        total = reduce(gradient, root_rank, _back_name(name), Sum, process_set=process_set)
        return (torch.zeros_like(gradient) if total is None else total,)

    return _apply_differentiable(lambda t: broadcast(t, root_rank, name, process_set), back, tensor)


def allgather(
    tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """All ranks' tensors joined along axis 0 in rank order; axis 0 may differ, the others not.

    A scalar counts as shape (1,); of Python's numbers and lists of them comes a list. Any dtype. A torch
    tensor that needs a gradient gets the sum of all ranks' gradients of its rows. Raises InvalidError,
    MismatchError, PeerLostError, TimeoutError.
    """
    if needs_gradient(tensor):
        return _allgather_with_gradient(tensor, name, process_set)
    session = session_of(process_set, "allgather")
    return start_one(session, allgather_part(tensor, name), stays=True).wait()


def _allgather_with_gradient(tensor: Any, name: str | None, process_set: ProcessSet) -> Any:
    """The gradient is the sum of all ranks' gradients of this rank's rows."""
    rows: list[int] = []

    def run(given: Any) -> Any:
        result, received = allgather_rows(given, name, process_set)
        rows.extend(received)
        return result

    def back(gradient: Any) -> Any:
        return (_sum_of_own_rows(gradient, rows, _back_name(name), process_set).reshape(tensor.shape),)

    return _apply_differentiable(run, back, tensor)


def grouped_allgather(
    tensors: Sequence[Any], name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """allgather() of several tensors, with one completion."""
    tensors = tensor_list(tensors, "grouped_allgather")
    if any(needs_gradient(tensor) for tensor in tensors):
        return _grouped_allgather_with_gradient(tensors, name, process_set)
    return list(start_grouped_allgather(tensors, name, process_set, True).wait())


def _grouped_allgather_with_gradient(
    tensors: Sequence[Any], name: str | None, process_set: ProcessSet
) -> list[Any]:
    """As allgather(), of those tensors that can have gradients."""
    rows: list[list[int]] = []

    def run(*given: Any) -> Any:
        results = start_grouped_allgather(given, name, process_set, True, with_rows=True).wait()
        rows.extend(received for _, received in results)
        return tuple(result for result, _ in results)

    def back(*gradients: Any) -> Any:
        back_name = _back_name(name)
        return tuple(
            _sum_of_own_rows(gradient, rows[index], name_in_group(back_name, index), process_set).reshape(tensor.shape)
            if _is_smooth(tensor) else None
            for index, (tensor, gradient) in enumerate(zip(tensors, gradients))
        )  # fmt: skip

    return list(_apply_differentiable(run, back, *tensors))


def _sum_of_own_rows(
    gradient: Any, rows: Sequence[int], name: str | None, process_set: ProcessSet
) -> Any:
    session = session_of(process_set, "allgather")
    whole, size = sum(rows), session.size
    even = [whole // size + (1 if rank < whole % size else 0) for rank in range(size)]
    if list(rows) == even:
        return reducescatter(gradient, name, Sum, process_set=process_set)
    received, _ = alltoall(gradient, list(rows), name, process_set)
    return received.reshape(size, rows[session.rank], *gradient.shape[1:]).sum(0)


def gather(
    tensor: Any,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """As allgather(), for the root alone: the others get None.

    Where a torch tensor needs a gradient, the others get a tensor without rows in place of None. They run
    backward through it, and get the root's gradient of their rows.
    """
    if needs_gradient(tensor):
        return _gather_with_gradient(tensor, root_rank, name, process_set)
    session = session_of(process_set, "gather")
    root = checked_root(root_rank, "gather", process_set)
    return start_one(session, gather_part(tensor, name, root, session), stays=True).wait()


def _gather_with_gradient(tensor: Any, root_rank: int, name: str | None, process_set: ProcessSet) -> Any:
    """The root sends each rank the gradient of its rows."""
    session = session_of(process_set, "gather")
    root = checked_root(root_rank, "gather", process_set)
    rows = [0] * session.size

    def run(given: Any) -> Any:
        pair = start_one(session, gather_part(given, name, root, session, with_rows=True), stays=True).wait()
        if pair is None:
            return given.new_empty((0, *given.shape[1:]))
        rows[:] = pair[1]
        return pair[0]

    def back(gradient: Any) -> Any:
        own, _ = alltoall(gradient, rows, _back_name(name), process_set)
        return (own.reshape(tensor.shape),)

    return _apply_differentiable(run, back, tensor)


def scatter(
    tensor: Any,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """This rank's part of the root's tensor, which is cut along axis 0 into equal parts.

    The root passes the whole, of shape (size * n, ...); the others a tensor of the shape and dtype of
    a part, (n, ...), whose values are not read. Any dtype. Where torch tensors need a gradient, the root gets
    the gradients of all parts, the others zeros; all ranks must pass a tensor that needs one, or none may.
    Raises InvalidError, MismatchError (sizes differ), PeerLostError, TimeoutError.
    """
    if needs_gradient(tensor):
        return _scatter_with_gradient(tensor, root_rank, name, process_set)
    session = session_of(process_set, "scatter")
    root = checked_root(root_rank, "scatter", process_set)
    return start_one(session, scatter_part(tensor, name, root, session), stays=True).wait()


def _scatter_with_gradient(tensor: Any, root_rank: int, name: str | None, process_set: ProcessSet) -> Any:
    """The root gathers the gradients of the parts."""
    import torch

    session = session_of(process_set, "scatter")
    is_root = session.rank == checked_root(root_rank, "scatter", process_set)

    def back(gradient: Any) -> Any:
        whole = gather(gradient, root_rank, _back_name(name), process_set)
        return (whole.reshape(tensor.shape) if is_root else torch.zeros_like(gradient),)

    return _apply_differentiable(lambda t: scatter(t, root_rank, name, process_set), back, tensor)


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends ``splits[r]`` rows of axis 0 to each rank r, one after the other; returns what all ranks
    sent to this one, joined along axis 0 in rank order.

    With ``splits`` the result is a pair: that, and how many rows came from each rank (int64). Without,
    every rank gets an equal number of rows. Any dtype. A torch tensor that needs a gradient gets it by
    the same way back. Raises InvalidError, MismatchError, PeerLostError, TimeoutError.
    """
    if needs_gradient(tensor):
        return _alltoall_with_gradient(tensor, splits, name, process_set)
    session = session_of(process_set, "alltoall")
    part = alltoall_part(tensor, splits, name, session.size)
    return start_one(session, part, stays=True).wait()


def _alltoall_with_gradient(tensor: Any, splits: Any, name: str | None, process_set: ProcessSet) -> Any:
    """The gradient goes the same way back."""
    import torch

    rows: list[int] = []

    def run(given: Any) -> Any:
        result, received = alltoall_rows(given, splits, name, process_set)
        rows.extend(received)
        return result

    def back(gradient: Any) -> Any:
        returned, _ = alltoall(gradient, rows, _back_name(name), process_set)
        return (returned.reshape(tensor.shape),)

    result = _apply_differentiable(run, back, tensor)
    return result if splits is None else (result, torch.tensor(rows, dtype=torch.int64, device="cpu"))

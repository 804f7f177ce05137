"""The operations on arrays. A tensor below is a numpy array, a torch CPU tensor or any exporter of
DLPack, the buffer protocol or ``__array_interface__``, contiguous or (numpy, torch) not.

Operations are matched between ranks by ``name``, or without one by their order among the unnamed
operations of the same kind, dtype, size and op. Every rank must start the same ones; if one does not,
the others get a MismatchError, PeerLostError or TimeoutError, never a hang.
"""

from __future__ import annotations

import enum
from typing import Any

from . import _core
from ._arrays import (
    Framework,
    framework_of,
    gathered_shape,
    is_reducible,
    is_same_memory,
)
from ._errors import bad_argument
from ._handles import Handle
from ._session import current


class ReduceOp(enum.IntEnum):
    """How all-reduce combines; numbers of the C interface."""

    SUM = 1
    AVERAGE = 2


Sum = ReduceOp.SUM
Average = ReduceOp.AVERAGE


def _what(verb: str, name: str | None) -> str:
    return f"{verb}: the tensor" if name is None else f"{verb}: tensor '{name}'"


def _checked_op(op: int, verb: str) -> int:
    if op not in (Sum, Average):
        raise bad_argument(f"{verb}: op={op!r}", "pass gradbus.Sum or gradbus.Average")
    return int(op)


def _checked_root(root_rank: int, verb: str) -> int:
    size = current().size
    if not isinstance(root_rank, int) or not 0 <= root_rank < size:
        raise bad_argument(f"{verb}: root_rank={root_rank!r}", f"pass a rank below {size}")
    return root_rank


def _reducible(framework: Framework | None, tensor: Any, what: str) -> Any:
    if framework is None:
        return tensor
    if not is_reducible(framework, tensor):
        raise bad_argument(
            f"{what} has dtype {framework.dtype_name(tensor)}, which cannot be reduced",
            "convert it to float32, float64, float16, bfloat16, int32, int64 or uint8",
        )
    return framework.contiguous(tensor, what)


def _movable(framework: Framework | None, tensor: Any, what: str) -> Any:
    """Broadcast and all-gather only move bytes, so any other dtype travels as uint8."""
    if framework is None:
        return tensor
    array = framework.contiguous(tensor, what)
    return array if is_reducible(framework, array) else framework.as_bytes(array)


def allreduce_async(tensor: Any, name: str | None = None, op: int = Average) -> Handle:
    """Starts allreduce(); the input may be reused at once."""
    what = _what("allreduce", name)
    framework = framework_of(tensor)
    source = _reducible(framework, tensor, what)
    if framework is None:
        raise bad_argument(
            f"{what} is a {type(tensor).__name__}, for which no output can be made",
            "use allreduce_() on it, or pass a numpy array or torch tensor",
        )
    result = framework.empty(source, tuple(source.shape))
    operation = current().allreduce(name, source, result, _checked_op(op, "allreduce"))
    return Handle(operation, lambda _: result)


def allreduce(tensor: Any, name: str | None = None, op: int = Average) -> Any:
    """The element-wise sum or mean over all ranks, as a new tensor of the same shape and dtype.

    Integers truncate toward zero when averaged. All ranks get the same bits. Raises InvalidError
    (dtype, device, layout), MismatchError (ranks disagree about size, dtype or op),
    PeerLostError, TimeoutError. Autograd does not see it.
    """
    return synchronize(allreduce_async(tensor, name, op))


def allreduce_async_(tensor: Any, name: str | None = None, op: int = Average) -> Handle:
    """Starts allreduce_(); the tensor holds the result after synchronize()."""
    framework = framework_of(tensor)
    source = _reducible(framework, tensor, _what("allreduce", name))
    operation = current().allreduce(name, source, source, _checked_op(op, "allreduce"))
    return Handle(operation, lambda _: _put_back(framework, source, tensor))


def allreduce_(tensor: Any, name: str | None = None, op: int = Average) -> Any:
    """As allreduce(), in place; returns the tensor."""
    return synchronize(allreduce_async_(tensor, name, op))


def _put_back(framework: Framework | None, array: Any, tensor: Any) -> Any:
    if framework is not None and not is_same_memory(array, tensor):
        framework.copy(array.view(tensor.dtype).reshape(tensor.shape), tensor)
    return tensor


def broadcast_async_(tensor: Any, root_rank: int = 0, name: str | None = None) -> Handle:
    """Starts broadcast_(); the tensor holds the root's values after synchronize()."""
    framework = framework_of(tensor)
    array = _movable(framework, tensor, _what("broadcast", name))
    operation = current().broadcast(name, array, _checked_root(root_rank, "broadcast"))
    return Handle(operation, lambda _: _put_back(framework, array, tensor))


def broadcast_(tensor: Any, root_rank: int = 0, name: str | None = None) -> Any:
    """Overwrites the tensor with the root's values, in place; returns it. Any dtype.

    Raises InvalidError, MismatchError (size, dtype or root differ), PeerLostError, TimeoutError.
    """
    return synchronize(broadcast_async_(tensor, root_rank, name))


def broadcast_async(tensor: Any, root_rank: int = 0, name: str | None = None) -> Handle:
    """Starts broadcast()."""
    what = _what("broadcast", name)
    framework = framework_of(tensor)
    if framework is None:
        raise bad_argument(
            f"{what} is a {type(tensor).__name__}, for which no output can be made",
            "use broadcast_() on it, or pass a numpy array or torch tensor",
        )
    source = framework.contiguous(tensor, what)
    result = framework.empty(source, tuple(source.shape))
    framework.copy(source, result)
    return broadcast_async_(result, root_rank, name)


def broadcast(tensor: Any, root_rank: int = 0, name: str | None = None) -> Any:
    """The root's tensor, as a new one; `tensor` gives the shape and dtype. Errors: broadcast_()."""
    return synchronize(broadcast_async(tensor, root_rank, name))


def allgather_async(tensor: Any, name: str | None = None) -> Handle:
    """Starts allgather()."""
    what = _what("allgather", name)
    framework = framework_of(tensor)
    if framework is None:
        raise bad_argument(
            f"{what} is a {type(tensor).__name__}, for which no output can be made",
            "pass a numpy array or torch tensor",
        )
    source = framework.contiguous(tensor, what)
    shape = tuple(source.shape) or (1,)
    moved = _movable(framework, source, what)
    moved_per_element = framework.item_bytes(source) // framework.item_bytes(moved)

    def finish(operation: _core.Operation) -> Any:
        counts = [count // moved_per_element for count in operation.counts()]
        result = framework.empty(source, gathered_shape(shape, counts, what))
        operation.copy_output(_movable(framework, result, what))
        return result

    return Handle(current().allgather(name, moved), finish)


def allgather(tensor: Any, name: str | None = None) -> Any:
    """All ranks' tensors joined along axis 0 in rank order; axis 0 may differ, the others not.

    A scalar counts as shape (1,). Any dtype. Raises InvalidError, MismatchError, PeerLostError,
    TimeoutError.
    """
    return synchronize(allgather_async(tensor, name))


def barrier() -> None:
    """Returns when every rank has called it."""
    current().barrier()


def poll(handle: Handle) -> bool:
    """True when synchronize(handle) would not block."""
    return handle.poll()


def synchronize(handle: Handle, timeout: float | None = None) -> Any:
    """Waits for an ``*_async`` operation and returns its result.

    ``timeout`` in seconds, default init()'s op_timeout; after a TimeoutError the operation is still
    in flight and can be waited for again.
    """
    return handle.wait(None if timeout is None else max(0, round(timeout * 1000)))

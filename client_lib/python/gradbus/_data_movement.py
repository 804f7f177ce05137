"""Broadcast, all-gather, gather, scatter and all-to-all: values move, of any dtype, bit by bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from . import _core
from ._arrays import check_writable, framework_of
from ._errors import bad_argument
from ._handles import Handle
from ._numbers import numbers_of
from ._ops import whole_number
from ._parts import (
    Blocks,
    Collective,
    Part,
    framework_or_refuse,
    movable,
    name_in_group,
    note_overwritten,
    shape_of,
    start_group,
    start_one,
    tensor_list,
    what_is,
    without_gradient,
)
from ._process_sets import ProcessSet, checked_root, global_process_set, session_of
from ._reduction_arguments import put_back
from ._watch import Replay

T = TypeVar("T")


def broadcast_async_(
    tensor: T,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle[T]:
    """Starts broadcast_(); the tensor holds the root's values after synchronize()."""
    session = session_of(process_set, "broadcast")
    root = checked_root(root_rank, "broadcast", process_set)
    return start_one(session, broadcast_part(tensor, root, name))


def broadcast_part(tensor: Any, root: int, name: str | None) -> Part:
    """broadcast_() of one tensor."""
    what = what_is("broadcast", name)
    framework = framework_of(tensor)
    if framework is None:
        request = _core.Request(Collective.BROADCAST, name, output=tensor, root=root)
        return Part(request, lambda *_: tensor)
    check_writable(tensor, what)
    array = framework.contiguous(tensor, what)
    moved = movable(framework, array)
    request = _core.Request(
        Collective.BROADCAST, name, output=moved, root=root, shape=shape_of(array.shape)
    )
    replay = Replay(Collective.BROADCAST, name, framework.dtype_name(array), shape_of(array.shape), root=root)
    note_overwritten(tensor, what)
    return Part(request, lambda *_: put_back(framework, array, tensor), replay)


def broadcast_(
    tensor: T,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> T:
    """Overwrites the tensor with the root's values, in place; returns it. Any dtype.

    ``root_rank`` is a rank of the job, also with a process set. Raises InvalidError, MismatchError
    (size, dtype or root differ), PeerLostError, TimeoutError.
    """
    return broadcast_async_(tensor, root_rank, name, process_set).wait()


def broadcast_async(
    tensor: T,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle[T]:
    """Starts broadcast()."""
    what = what_is("broadcast", name)
    tensor = numbers_of(tensor, what)
    framework = framework_or_refuse(
        tensor, what, "use broadcast_() on it, or pass a numpy array or torch tensor"
    )
    source = framework.contiguous(tensor, what)
    result = framework.empty(source, tuple(source.shape))
    framework.copy(source, result)
    session = session_of(process_set, "broadcast")
    part = broadcast_part(result, checked_root(root_rank, "broadcast", process_set), name)
    ended = without_gradient(tensor, what)

    def finish(operation: _core.Operation, index: int) -> Any:
        return ended(framework.returned(part.finish(operation, index), tensor))

    return start_one(session, Part(part.request, finish, part.replay))


def allgather_part(tensor: Any, name: str | None, with_rows: bool = False) -> Part:
    """allgather() of one tensor; ``with_rows``: the result is a pair with the rows of each rank."""
    blocks = Blocks(tensor, what_is("allgather", name))
    payload = blocks.payload([blocks.shape[0]])
    request = _core.Request(Collective.ALLGATHER, name, payload, shape=blocks.shape)
    replay = blocks.replay(Collective.ALLGATHER, name)
    if with_rows:
        return Part(request, blocks.received, replay)
    return Part(request, lambda operation, index: blocks.received(operation, index)[0], replay)


def allgather_rows(
    tensor: Any, name: str | None, process_set: ProcessSet
) -> tuple[Any, list[int]]:
    """allgather(), and the rows of each rank."""
    session = session_of(process_set, "allgather")
    part = allgather_part(tensor, name, with_rows=True)
    result, rows = start_one(session, part, stays=True).wait()
    return result, rows


def allgather_async(
    tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[Any]:
    """Starts allgather()."""
    return start_one(session_of(process_set, "allgather"), allgather_part(tensor, name))


def start_grouped_allgather(
    tensors: Sequence[Any], name: str | None, process_set: ProcessSet, stays: bool, with_rows: bool = False
) -> Handle[Any]:
    """One operation for all tensors; ``with_rows``: each result is a pair with the rows of each rank."""
    parts = [
        allgather_part(tensor, name_in_group(name, index), with_rows)
        for index, tensor in enumerate(tensor_list(tensors, "grouped_allgather"))
    ]
    return start_group(session_of(process_set, "grouped_allgather"), parts, stays)


def grouped_allgather_async(
    tensors: Sequence[Any], name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[Any]:
    """Starts grouped_allgather()."""
    return start_grouped_allgather(tensors, name, process_set, False)


def gather_part(
    tensor: Any, name: str | None, root: int, session: _core.Session, with_rows: bool = False
) -> Part:
    """gather() of one tensor; ``with_rows``: the root's result is a pair with the rows of each rank."""
    blocks = Blocks(tensor, what_is("gather", name))
    payload = blocks.payload([blocks.shape[0]])
    request = _core.Request(Collective.GATHER, name, payload, root=root, shape=blocks.shape)
    if session.rank != root:
        return Part(request, lambda *_: None)
    if with_rows:
        return Part(request, blocks.received)
    return Part(request, lambda operation, index: blocks.received(operation, index)[0])


def gather_async(
    tensor: Any,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle[Any]:
    """Starts gather()."""
    session = session_of(process_set, "gather")
    root = checked_root(root_rank, "gather", process_set)
    return start_one(session, gather_part(tensor, name, root, session))


def scatter_part(tensor: Any, name: str | None, root: int, session: _core.Session) -> Part:
    """scatter() of one tensor."""
    what = what_is("scatter", name)
    tensor = numbers_of(tensor, what)
    framework = framework_or_refuse(tensor, what, "pass a numpy array or torch tensor")
    source = framework.contiguous(tensor, what)
    ended = without_gradient(tensor, what)
    shape = tuple(source.shape)
    if session.rank != root:
        result = framework.empty(source, shape)
        request = _core.Request(
            Collective.SCATTER, name, output=movable(framework, result), root=root,
            shape=shape_of(shape),
        )  # fmt: skip
        return Part(request, lambda *_: ended(framework.returned(result, tensor)))
    if not shape or shape[0] % session.size != 0:
        raise bad_argument(
            f"{what} has shape {shape}: its axis 0 cannot be cut into {session.size} equal parts",
            "pass as many rows for each rank",
        )
    part = (shape[0] // session.size, *shape[1:])
    result = framework.empty(source, part)
    request = _core.Request(
        Collective.SCATTER, name, movable(framework, source), movable(framework, result), root=root,
        shape=shape_of(part),
    )  # fmt: skip
    return Part(request, lambda *_: ended(framework.returned(result, tensor)))


def scatter_async(
    tensor: Any,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle[Any]:
    """Starts scatter()."""
    session = session_of(process_set, "scatter")
    root = checked_root(root_rank, "scatter", process_set)
    return start_one(session, scatter_part(tensor, name, root, session))


def _equal_splits(rows: int, size: int, what: str) -> list[int]:
    if rows % size != 0:
        raise bad_argument(
            f"{what} has {rows} rows, not the same number for each of {size} ranks", "pass splits"
        )
    return [rows // size] * size


def _checked_splits(splits: Any, rows: int, size: int, what: str) -> list[int]:
    if hasattr(splits, "asnumpy"):  # of MXNet, whose elements are arrays
        splits = splits.asnumpy()
    try:
        numbers = [whole_number(split) for split in splits]
    except TypeError:
        numbers = []
    if len(numbers) != size or any(number is None or number < 0 for number in numbers):
        raise bad_argument(
            f"{what}: splits={' '.join(repr(splits).split())}", f"pass {size} whole numbers of at least 0, one per rank"
        )
    checked = [number for number in numbers if number is not None]
    if sum(checked) != rows:
        raise bad_argument(
            f"{what}: splits={checked} add up to {sum(checked)} rows, the tensor has {rows}",
            "pass splits that add up to the length of axis 0",
        )
    return checked


def alltoall_part(
    tensor: Any, splits: Any, name: str | None, size: int, with_rows: bool = False
) -> Part:
    """alltoall() of one tensor; ``with_rows``: the result is a pair with the rows from each rank."""
    what = what_is("alltoall", name)
    blocks = Blocks(tensor, what)
    rows = (
        _equal_splits(blocks.shape[0], size, what)
        if splits is None
        else _checked_splits(splits, blocks.shape[0], size, what)
    )
    request = _core.Request(
        Collective.ALLTOALL, name, blocks.payload(rows), send_counts=blocks.send_counts(rows), shape=blocks.shape,
    )  # fmt: skip

    def finish(operation: _core.Operation, index: int) -> Any:
        result, received = blocks.received(operation, index)
        if with_rows:
            return result, received
        return result if splits is None else (result, blocks.framework.integers(received))

    return Part(request, finish, blocks.replay(Collective.ALLTOALL, name))


def alltoall_rows(
    tensor: Any, splits: Any, name: str | None, process_set: ProcessSet
) -> tuple[Any, list[int]]:
    """alltoall(), and the rows that came from each rank."""
    session = session_of(process_set, "alltoall")
    part = alltoall_part(tensor, splits, name, session.size, with_rows=True)
    result, rows = start_one(session, part, stays=True).wait()
    return result, rows


def alltoall_async(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle[Any]:
    """Starts alltoall()."""
    session = session_of(process_set, "alltoall")
    return start_one(session, alltoall_part(tensor, splits, name, session.size))

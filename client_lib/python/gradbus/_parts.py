"""From arrays to requests of the extension: what every kind of operation does before it starts.

A *part* is one operation of a (possibly one-element) group: its request, and how its result is made.
"""

from __future__ import annotations

import enum
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from . import _core
from ._arrays import (
    BOOL,
    COMPLEX,
    FLOATS,
    INTEGERS,
    Framework,
    framework_of,
    hides_bfloat16,
    is_native,
    needs_gradient,
    row_elements,
    rows_of,
)
from ._errors import bad_argument
from ._handles import Handle
from ._layout import DTYPES
from ._numbers import numbers_of
from ._ops import OF_BOOLS, OF_COMPLEX, OF_FLOATS, OF_INTEGERS, ReduceOp, op_names
from ._watch import Replay, tell_start

_BFLOAT16_NUMBER = DTYPES["bfloat16"][1]
_BOOL_NUMBER = 9  # GRADBUS_BOOL


class Collective(enum.IntEnum):
    """Numbers of the C interface."""

    ALLREDUCE = 1
    BROADCAST = 2
    ALLGATHER = 3
    REDUCE = 4
    REDUCESCATTER = 5
    GATHER = 6
    SCATTER = 7
    ALLTOALL = 8


class Part(NamedTuple):
    """One operation of a group; ``finish(operation, index)`` makes its result."""

    request: _core.Request
    finish: Callable[[_core.Operation, int], Any]
    replay: Replay | None = None  # for ranks that have joined


def start_one(session: _core.Session, part: Part, stays: bool = False) -> Handle[Any]:
    """``stays``: the caller waits before anybody touches the input again."""
    operation = session.start([part.request], stays)
    tell_start(session, lambda: [part.replay], operation)
    return Handle(operation, lambda ended: part.finish(ended, 0))


def start_group(session: _core.Session, parts: Sequence[Part], stays: bool = False) -> Handle[list[Any]]:
    """One handle for all parts; its result is the list of theirs."""
    operation = session.start([part.request for part in parts], stays)
    tell_start(session, lambda: [part.replay for part in parts], operation)
    return Handle(
        operation, lambda ended: [part.finish(ended, index) for index, part in enumerate(parts)]
    )


def what_is(verb: str, name: str | None) -> str:
    """How messages speak of an operation; InvalidError for what is no name."""
    if name is None:
        return f"{verb}: the tensor"
    if not isinstance(name, str):
        raise bad_argument(
            f"{verb}: name={name!r} is no text", "pass name= as text, and op=gradbus.Sum or another"
        )
    if "\0" in name:
        raise bad_argument(f"{verb}: name={name!r} has a NUL in it", "pass a name without it")
    return f"{verb}: tensor '{name}'"


def without_gradient(tensor: Any, what: str) -> Callable[[Any], Any]:
    """What a form with a handle does with its new result: a gradient that would be missing is an error."""
    if not needs_gradient(tensor):
        return lambda result: result
    from ._autograd import new_without_gradient  # which needs torch

    return lambda result: new_without_gradient(tensor, result, what)


def note_overwritten(tensor: Any, what: str) -> None:
    """What a form in place does with its tensor: a gradient that would be wrong is an error."""
    if needs_gradient(tensor):
        from ._autograd import overwritten_without_gradient

        overwritten_without_gradient(tensor, what)


def tensor_list(tensors: Iterable[Any], verb: str) -> list[Any]:
    """The tensors of a group."""
    if isinstance(tensors, Iterable) and not hasattr(tensors, "dtype"):
        return list(tensors)
    raise bad_argument(
        f"{verb}: a {type(tensors).__name__} is no list of tensors", "pass a list, as in [tensor]"
    )


def name_in_group(name: str | None, index: int) -> str | None:
    """Members of a named group are matched by ``name.index``."""
    return None if name is None else f"{name}.{index}"


def framework_or_refuse(tensor: Any, what: str, instead: str) -> Framework:
    """The row of numpy or torch; InvalidError for an object that we cannot make another of."""
    framework = framework_of(tensor)
    if framework is None:
        raise bad_argument(
            f"{what} is a {type(tensor).__name__}, for which no output can be made", instead
        )
    return framework


def _ops_for(dtype: str) -> Sequence[ReduceOp]:
    if dtype in FLOATS:
        return OF_FLOATS
    if dtype in INTEGERS:
        return OF_INTEGERS
    if dtype in COMPLEX:
        return OF_COMPLEX
    return OF_BOOLS if dtype == BOOL else ()


def check_reducible(framework: Framework, tensor: Any, op: ReduceOp, what: str) -> str:
    """The dtype; InvalidError unless arrays of it can be combined by ``op``."""
    dtype = framework.dtype_name(tensor)
    ops = _ops_for(dtype)
    if not ops:
        raise bad_argument(
            f"{what} has dtype {dtype}, which cannot be reduced",
            "convert it to float32, float64, float16, bfloat16, complex64, complex128, an integer of 8 "
            "to 64 bits or bool",
        )
    if op not in ops:
        raise bad_argument(
            f"{what} has dtype {dtype}, for which {op_names([op])} is not defined",
            f"use {op_names(ops)}",
        )
    return dtype


class Wire(NamedTuple):
    """An array as the extension reads it, and the number of its dtype where the array hides it."""

    array: Any
    dtype: int | None


def reducible(framework: Framework, contiguous: Any) -> Wire:
    """Truth values are handed over as bytes, with their own number; complex ones as pairs of reals."""
    dtype = framework.dtype_name(contiguous)
    if dtype == BOOL:
        return Wire(framework.as_bytes(contiguous), _BOOL_NUMBER)
    if dtype in COMPLEX:
        return Wire(framework.parts(contiguous), None)
    if hides_bfloat16(contiguous):
        return Wire(contiguous.view("uint16"), _BFLOAT16_NUMBER)
    return Wire(framework.exported(contiguous), None)


def movable(framework: Framework, contiguous: Any) -> Any:
    """What only moves may have any dtype: those that we cannot add up travel as bytes."""
    native = is_native(framework, contiguous)
    return framework.exported(contiguous) if native else framework.as_bytes(contiguous)


def shape_of(shape: Sequence[int]) -> tuple[int, ...]:
    """As it is compared between ranks: a scalar is as good as one element."""
    return tuple(shape) or (1,)


def int64(values: Sequence[int]) -> array[int]:
    """A buffer for numbers of our own; needs no framework."""
    return array("q", values)


class Blocks:
    """A tensor that travels as blocks of rows, and how a result is made of the blocks received.

    Where a row has no elements, the numbers of rows travel instead: the shape of the result is all
    there is to know.
    """

    def __init__(self, tensor: Any, what: str) -> None:
        tensor = numbers_of(tensor, what)
        self.what = what
        self.framework = framework_or_refuse(tensor, what, "pass a numpy array or torch tensor")
        self._given = tensor
        self._ended = without_gradient(tensor, what)
        self.source = self.framework.contiguous(tensor, what)
        self.shape: tuple[int, ...] = tuple(self.source.shape) or (1,)
        self.row = row_elements(self.shape)
        self._moved = movable(self.framework, self.source)
        # Elements as sent for each element of the tensor.
        native = is_native(self.framework, self.source)
        self.ratio = 1 if native else self.framework.item_bytes(self.source)  # else bytes travel

    def replay(self, collective: Collective, name: str | None) -> Replay:
        """What a rank that has joined must know of it."""
        return Replay(collective, name, self.framework.dtype_name(self.source), self.shape)

    def payload(self, rows: Sequence[int]) -> Any:
        """What to send; ``rows``: of each block that this rank brings."""
        return self._moved if self.row > 0 else int64(rows)

    def send_counts(self, rows: Sequence[int]) -> list[int]:
        """All-to-all: elements of the payload for each rank."""
        return (
            [count * self.row * self.ratio for count in rows] if self.row > 0 else [1] * len(rows)
        )

    def received(self, operation: _core.Operation, index: int) -> tuple[Any, list[int]]:
        """All blocks joined along axis 0, and the rows of each."""
        counts = operation.counts(index)
        if self.row == 0:
            numbers = int64([0] * len(counts))
            operation.copy_output(numbers, index)
            rows = list(numbers)
            nothing = self.framework.empty(self.source, (sum(rows), *self.shape[1:]))
            return self._ended(self.framework.returned(nothing, self._given)), rows
        rows = rows_of([count // self.ratio for count in counts], self.shape, self.what)
        result = self.framework.empty(self.source, (sum(rows), *self.shape[1:]))
        operation.copy_output(movable(self.framework, result), index)
        return self._ended(self.framework.returned(result, self._given)), rows

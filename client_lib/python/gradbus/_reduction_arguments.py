"""What the reductions do before they start: from their arguments and a tensor to parts of a group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from . import _core
from ._arrays import (
    COMPLEX,
    INTEGERS,
    Framework,
    check_writable,
    framework_of,
    is_same_memory,
    note_write,
    row_elements,
)
from ._errors import bad_argument
from ._numbers import numbers_of
from ._ops import ALL_BUT_ADASUM, Average, ReduceOp, checked_compression, checked_factor, checked_op
from ._parts import (
    Collective,
    Part,
    check_reducible,
    framework_or_refuse,
    note_overwritten,
    reducible,
    shape_of,
    what_is,
    without_gradient,
)
from ._process_sets import ProcessSet, session_of
from ._watch import Replay

_INSTEAD = "pass a numpy array, a torch tensor or a number; allreduce_() also takes any buffer"
_TENSOR = "pass a numpy array or torch tensor"


class ReductionArguments:
    """The arguments that all reductions have, checked, and the session they run in."""

    def __init__(
        self,
        verb: str,
        process_set: ProcessSet,
        op: int,
        prescale_factor: float,
        postscale_factor: float,
        allowed: Sequence[ReduceOp] = ALL_BUT_ADASUM,
        compression: str | None = None,
    ) -> None:
        self.verb = verb
        self.op = checked_op(op, verb, allowed)
        self.prescale = checked_factor(prescale_factor, "prescale_factor", verb)
        self.postscale = checked_factor(postscale_factor, "postscale_factor", verb)
        self.zeroes = self.prescale == 0 or self.postscale == 0  # what is sent is multiplied by 0 afterwards
        self.compression = checked_compression(compression, verb)
        self.process_set = process_set
        self.session = session_of(process_set, verb)


class _Given(NamedTuple):
    """A tensor to be reduced, and its copy or view as it is sent."""

    how: ReductionArguments
    framework: Framework
    tensor: Any
    source: Any
    scales: bool  # the core applies the factors; those of integers are applied here
    ended: Callable[[Any], Any]  # applied to a new result

    def request(
        self, collective: Collective, name: str | None, into: Any, root: int = 0, rows: bool = False
    ) -> _core.Request:
        """``into``: an array like the source, or None; ``rows``: they are never cut."""
        sent, dtype = reducible(self.framework, self.source)
        result = None if into is None else reducible(self.framework, into).array
        shape = shape_of(self.source.shape)
        parts = 2 if self.framework.dtype_name(self.source) in COMPLEX else 1
        return _core.Request(
            collective, name, sent, result, op=self.how.op,
            prescale=self.how.prescale or 1.0 if self.scales else 1.0,
            postscale=self.how.postscale or 1.0 if self.scales else 1.0,
            dtype=dtype, root=root, row_elements=max(1, row_elements(shape)) * parts if rows else 1,
            compression=self.how.compression, shape=shape,
        )  # fmt: skip

    def replay(self, collective: Collective, name: str | None, root: int = 0) -> Replay:
        """What a rank that has joined must know of it."""
        return Replay(
            collective, name, self.framework.dtype_name(self.source), shape_of(self.source.shape), self.how.op,
            self.how.prescale or 1.0, self.how.postscale or 1.0, root, self.how.compression,
        )  # fmt: skip

    def empty(self, shape: Sequence[int]) -> Any:
        """For a result."""
        return self.framework.empty(self.source, tuple(shape))

    def finished(self, result: Any) -> Any:
        """The result with the factor that the core did not apply."""
        if self.scales and self.how.zeroes:
            return self.framework.scaled(result, 0.0)
        if self.scales or self.how.postscale == 1:
            return result
        return self.framework.scaled(result, self.how.postscale)

    def returned(self, result: Any) -> Any:
        """The finished result where the tensor lies."""
        return self.ended(self.framework.returned(self.finished(result), self.tensor))


def _given(how: ReductionArguments, tensor: Any, what: str, instead: str = _TENSOR) -> _Given:
    tensor = numbers_of(tensor, what, how.op is Average)
    framework = framework_or_refuse(tensor, what, instead)
    dtype = check_reducible(framework, tensor, how.op, what)
    source = framework.contiguous(tensor, what)
    scales = dtype not in INTEGERS
    if not scales and how.prescale != 1:
        source = framework.scaled(source, how.prescale)
    return _Given(how, framework, tensor, source, scales, without_gradient(tensor, what))


def allreduce_part(how: ReductionArguments, tensor: Any, name: str | None) -> Part:
    """Its result is a new tensor."""
    given = _given(how, tensor, what_is(how.verb, name), _INSTEAD)
    result = given.empty(given.source.shape)
    request = given.request(Collective.ALLREDUCE, name, result)
    return Part(request, lambda *_: given.returned(result), given.replay(Collective.ALLREDUCE, name))


def allreduce_in_place_part(how: ReductionArguments, tensor: Any, name: str | None) -> Part:
    """Its result is the tensor."""
    what = what_is(how.verb, name)
    if framework_of(tensor) is None:
        request = _core.Request(
            Collective.ALLREDUCE, name, tensor, tensor, op=how.op, prescale=how.prescale,
            postscale=how.postscale, compression=how.compression,
        )  # fmt: skip
        return Part(request, lambda *_: tensor)
    check_writable(tensor, what)
    given = _given(how, tensor, what, _INSTEAD)
    request = given.request(Collective.ALLREDUCE, name, given.source)
    replay = given.replay(Collective.ALLREDUCE, name)
    note_overwritten(tensor, what)
    return Part(request, lambda *_: put_back(given.framework, given.finished(given.source), tensor), replay)


def put_back(framework: Framework | None, array: Any, tensor: Any) -> Any:
    """Copies a result that was made in a contiguous copy into the tensor it stands for."""
    if framework is not None and array is not tensor and not is_same_memory(array, tensor):
        framework.copy(array.reshape(tensor.shape), tensor)
    elif framework is not None:
        note_write(tensor)
    return tensor


def reduce_part(how: ReductionArguments, tensor: Any, name: str | None, root: int) -> Part:
    """Its result is a new tensor on the root, else None."""
    given = _given(how, tensor, what_is(how.verb, name))
    is_root = how.session.rank == root
    result = given.empty(given.source.shape) if is_root else None
    request = given.request(Collective.REDUCE, name, result, root)
    replay = given.replay(Collective.REDUCE, name, root)
    return Part(request, lambda *_: given.returned(result) if is_root else None, replay)


def reducescatter_part(how: ReductionArguments, tensor: Any, name: str | None) -> Part:
    """Its result is a new tensor: this rank's rows."""
    what = what_is(how.verb, name)
    given = _given(how, tensor, what)
    shape = tuple(given.source.shape)
    if not shape:
        raise bad_argument(f"{what} is a scalar", "pass a tensor with an axis 0 to cut")
    result = given.empty((rows_of_rank(shape[0], how.session), *shape[1:]))
    request = given.request(Collective.REDUCESCATTER, name, result, rows=True)
    return Part(request, lambda *_: given.returned(result), given.replay(Collective.REDUCESCATTER, name))


def rows_of_rank(rows: int, session: _core.Session) -> int:
    """How many rows of an axis a reduce-scatter gives to this rank."""
    return rows // session.size + (1 if session.rank < rows % session.size else 0)

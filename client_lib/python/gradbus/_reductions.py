"""All-reduce, reduce and reduce-scatter, one tensor or a group.

A tensor is a numpy array or a torch tensor, contiguous or not, whose copy in host memory is reduced
where it lies on a device; the forms in place also take any
exporter of DLPack, the buffer protocol or ``__array_interface__`` that is contiguous.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _core
from ._arrays import Framework, framework_of, is_same_memory, row_elements
from ._errors import bad_argument
from ._handles import Handle
from ._ops import (
    ALL,
    ALL_BUT_ADASUM,
    Average,
    ReduceOp,
    checked_compression,
    checked_factor,
    checked_op,
)
from ._parts import (
    Collective,
    Part,
    check_reducible,
    framework_or_refuse,
    name_in_group,
    reducible,
    start_group,
    start_one,
    what_is,
)
from ._process_sets import ProcessSet, checked_root, global_process_set, session_of

_INSTEAD = "use allreduce_() on it, or pass a numpy array or torch tensor"


class _How:
    """The arguments that all reductions have, checked."""

    def __init__(
        self,
        verb: str,
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
        self.compression = checked_compression(compression, verb)

    def request(
        self,
        collective: Collective,
        name: str | None,
        source: Any,
        result: Any,
        dtype: int | None,
        root: int = 0,
        row: int = 1,
    ) -> _core.Request:
        """The core's description."""
        return _core.Request(
            collective, name, source, result, op=self.op,
            prescale=self.prescale, postscale=self.postscale, dtype=dtype,
            root=root, row_elements=row, compression=self.compression,
        )  # fmt: skip


def _allreduce_part(how: _How, tensor: Any, name: str | None) -> Part:
    what = what_is(how.verb, name)
    framework = framework_or_refuse(tensor, what, _INSTEAD)
    check_reducible(framework, tensor, how.op, what)
    source = framework.contiguous(tensor, what)
    result = framework.empty(source, tuple(source.shape))
    sent, dtype = reducible(framework, source)
    request = how.request(
        Collective.ALLREDUCE, name, sent, reducible(framework, result).array, dtype
    )
    return Part(request, lambda *_: framework.returned(result, tensor))


def _allreduce_in_place_part(how: _How, tensor: Any, name: str | None) -> Part:
    what = what_is(how.verb, name)
    framework = framework_of(tensor)
    if framework is None:
        return Part(
            how.request(Collective.ALLREDUCE, name, tensor, tensor, None), lambda *_: tensor
        )
    check_reducible(framework, tensor, how.op, what)
    source = framework.contiguous(tensor, what)
    sent, dtype = reducible(framework, source)
    request = how.request(Collective.ALLREDUCE, name, sent, sent, dtype)
    return Part(request, lambda *_: put_back(framework, source, tensor))


def put_back(framework: Framework | None, array: Any, tensor: Any) -> Any:
    """Copies a result that was made in a contiguous copy into the tensor it stands for."""
    if framework is not None and not is_same_memory(array, tensor):
        framework.copy(array.reshape(tensor.shape), tensor)
    return tensor


def allreduce_async(
    tensor: Any,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    compression: str | None = None,
) -> Handle:
    """Starts allreduce(); the input may be reused at once."""
    how = _How("allreduce", op, prescale_factor, postscale_factor, ALL, compression)
    session = session_of(process_set, how.verb)
    return start_one(session, _allreduce_part(how, tensor, name))


def allreduce(
    tensor: Any,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    compression: str | None = None,
) -> Any:
    """The tensors of all ranks combined element by element, as a new tensor of the same shape and
    dtype; all ranks get the same bits.

    ``op``: Sum, Average (integers truncate toward zero), Min, Max (a NaN wins), Product; BitAnd and
    BitOr of integers; Adasum of floats (Maleki et al. 2020); of bool Min, Max, BitAnd and BitOr.
    Floats are multiplied by ``prescale_factor`` before and by ``postscale_factor`` after.
    ``compression``: how a float32 sum or average travels between nodes, as ``Compression.fp16`` or
    ``"topk:ratio=0.01"``; what it leaves out is added to the next round of the same name.

    Raises InvalidError (dtype, op, device, layout), MismatchError (ranks disagree about size, dtype,
    op or factors), PeerLostError, TimeoutError. Autograd does not see it.
    """
    how = _How("allreduce", op, prescale_factor, postscale_factor, ALL, compression)
    session = session_of(process_set, how.verb)
    return start_one(session, _allreduce_part(how, tensor, name), stays=True).wait()


def allreduce_async_(
    tensor: Any,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    compression: str | None = None,
) -> Handle:
    """Starts allreduce_(); the tensor holds the result after synchronize()."""
    how = _How("allreduce", op, prescale_factor, postscale_factor, ALL, compression)
    session = session_of(process_set, how.verb)
    return start_one(session, _allreduce_in_place_part(how, tensor, name))


def allreduce_(
    tensor: Any,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    compression: str | None = None,
) -> Any:
    """As allreduce(), in place; returns the tensor."""
    how = _How("allreduce", op, prescale_factor, postscale_factor, ALL, compression)
    session = session_of(process_set, how.verb)
    return start_one(session, _allreduce_in_place_part(how, tensor, name), stays=True).wait()


def _grouped_allreduce(
    part_of: Any,
    tensors: Sequence[Any],
    name: str | None,
    how: _How,
    process_set: ProcessSet,
    stays: bool,
) -> Handle:
    parts = [
        part_of(how, tensor, name_in_group(name, index)) for index, tensor in enumerate(tensors)
    ]
    return start_group(session_of(process_set, how.verb), parts, stays)


def grouped_allreduce_async(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    compression: str | None = None,
) -> Handle:
    """Starts grouped_allreduce()."""
    how = _How("grouped_allreduce", op, prescale_factor, postscale_factor, ALL, compression)
    return _grouped_allreduce(_allreduce_part, tensors, name, how, process_set, False)


def grouped_allreduce(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    compression: str | None = None,
) -> list[Any]:
    """allreduce() of several tensors, of any dtypes and shapes, with one completion."""
    how = _How("grouped_allreduce", op, prescale_factor, postscale_factor, ALL, compression)
    handle = _grouped_allreduce(_allreduce_part, tensors, name, how, process_set, True)
    return list(handle.wait())


def grouped_allreduce_async_(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    compression: str | None = None,
) -> Handle:
    """Starts grouped_allreduce_()."""
    how = _How("grouped_allreduce", op, prescale_factor, postscale_factor, ALL, compression)
    return _grouped_allreduce(_allreduce_in_place_part, tensors, name, how, process_set, False)


def grouped_allreduce_(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    compression: str | None = None,
) -> list[Any]:
    """As grouped_allreduce(), in place; returns the tensors."""
    how = _How("grouped_allreduce", op, prescale_factor, postscale_factor, ALL, compression)
    handle = _grouped_allreduce(_allreduce_in_place_part, tensors, name, how, process_set, True)
    return list(handle.wait())


def _reduce_part(
    how: _How, tensor: Any, name: str | None, root: int, session: _core.Session
) -> Part:
    what = what_is(how.verb, name)
    framework = framework_or_refuse(tensor, what, "pass a numpy array or torch tensor")
    check_reducible(framework, tensor, how.op, what)
    source = framework.contiguous(tensor, what)
    result = framework.empty(source, tuple(source.shape)) if session.rank == root else None
    into = None if result is None else reducible(framework, result).array
    sent, dtype = reducible(framework, source)
    request = how.request(Collective.REDUCE, name, sent, into, dtype, root=root)
    return Part(request, lambda *_: None if result is None else framework.returned(result, tensor))


def reduce_async(
    tensor: Any,
    root_rank: int = 0,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Starts reduce()."""
    how = _How("reduce", op, prescale_factor, postscale_factor)
    session = session_of(process_set, how.verb)
    root = checked_root(root_rank, how.verb, process_set)
    return start_one(session, _reduce_part(how, tensor, name, root, session))


def reduce(
    tensor: Any,
    root_rank: int = 0,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """As allreduce(), for the root alone: the others get None. Not for Adasum.

    ``root_rank`` is a rank of the job, also with a process set.
    """
    how = _How("reduce", op, prescale_factor, postscale_factor)
    session = session_of(process_set, how.verb)
    root = checked_root(root_rank, how.verb, process_set)
    return start_one(session, _reduce_part(how, tensor, name, root, session), stays=True).wait()


def _reducescatter_part(how: _How, tensor: Any, name: str | None, session: _core.Session) -> Part:
    what = what_is(how.verb, name)
    framework = framework_or_refuse(tensor, what, "pass a numpy array or torch tensor")
    check_reducible(framework, tensor, how.op, what)
    source = framework.contiguous(tensor, what)
    shape = tuple(source.shape)
    if not shape:
        raise bad_argument(f"{what} is a scalar", "pass a tensor with an axis 0 to cut")
    rows = shape[0] // session.size + (1 if session.rank < shape[0] % session.size else 0)
    result = framework.empty(source, (rows, *shape[1:]))
    sent, dtype = reducible(framework, source)
    request = how.request(
        Collective.REDUCESCATTER, name, sent, reducible(framework, result).array, dtype,
        row=max(1, row_elements(shape)),
    )  # fmt: skip
    return Part(request, lambda *_: framework.returned(result, tensor))


def reducescatter_async(
    tensor: Any,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Starts reducescatter()."""
    how = _How("reducescatter", op, prescale_factor, postscale_factor)
    session = session_of(process_set, how.verb)
    return start_one(session, _reducescatter_part(how, tensor, name, session))


def reducescatter(
    tensor: Any,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """As allreduce(), and each rank gets its rows of the result: axis 0 is cut as evenly as can be,
    the first ranks get one row more. Not for Adasum.

    A tensor of shape (5, 3) gives (2, 3), (2, 3) and (1, 3) on three ranks.
    """
    how = _How("reducescatter", op, prescale_factor, postscale_factor)
    session = session_of(process_set, how.verb)
    return start_one(session, _reducescatter_part(how, tensor, name, session), stays=True).wait()


def _grouped_reducescatter(
    tensors: Sequence[Any], name: str | None, how: _How, process_set: ProcessSet, stays: bool
) -> Handle:
    session = session_of(process_set, how.verb)
    parts = [
        _reducescatter_part(how, tensor, name_in_group(name, index), session)
        for index, tensor in enumerate(tensors)
    ]
    return start_group(session, parts, stays)


def grouped_reducescatter_async(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Starts grouped_reducescatter()."""
    how = _How("grouped_reducescatter", op, prescale_factor, postscale_factor)
    return _grouped_reducescatter(tensors, name, how, process_set, False)


def grouped_reducescatter(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """reducescatter() of several tensors, with one completion."""
    how = _How("grouped_reducescatter", op, prescale_factor, postscale_factor)
    return list(_grouped_reducescatter(tensors, name, how, process_set, True).wait())

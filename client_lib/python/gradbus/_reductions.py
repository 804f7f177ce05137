"""All-reduce, reduce and reduce-scatter, one tensor or a group.

A tensor is a numpy array or a torch tensor, contiguous or not, whose copy in host memory is reduced
where it lies on a device, or one of Python's own numbers, or a list of them. The forms in place also
take any contiguous exporter of DLPack, the buffer protocol or ``__array_interface__``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ._handles import Handle
from ._ops import ALL, Average
from ._parts import Part, name_in_group, start_group, start_one, tensor_list
from ._process_sets import ProcessSet, checked_root, global_process_set
from ._reduction_arguments import (
    ReductionArguments,
    allreduce_in_place_part,
    allreduce_part,
    reduce_part,
    reducescatter_part,
)

T = TypeVar("T")


def allreduce_async(
    tensor: T,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    compression: str | None = None,
) -> Handle[T]:
    """Starts allreduce(); the input may be reused at once."""
    how = ReductionArguments("allreduce", process_set, op, prescale_factor, postscale_factor, ALL, compression)
    return start_one(how.session, allreduce_part(how, tensor, name))


def allreduce_async_(
    tensor: T,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    compression: str | None = None,
) -> Handle[T]:
    """Starts allreduce_(); the tensor holds the result after synchronize()."""
    how = ReductionArguments("allreduce", process_set, op, prescale_factor, postscale_factor, ALL, compression)
    return start_one(how.session, allreduce_in_place_part(how, tensor, name))


def allreduce_(
    tensor: T,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    compression: str | None = None,
) -> T:
    """As allreduce(), in place; returns the tensor."""
    how = ReductionArguments("allreduce", process_set, op, prescale_factor, postscale_factor, ALL, compression)
    return start_one(how.session, allreduce_in_place_part(how, tensor, name), stays=True).wait()


def start_grouped_allreduce(
    part_of: Callable[[ReductionArguments, Any, str | None], Part],
    tensors: Sequence[T],
    name: str | None,
    how: ReductionArguments,
    stays: bool,
) -> Handle[list[Any]]:
    """One operation for all tensors; ``part_of``: what each of them is in it."""
    parts = [
        part_of(how, tensor, name_in_group(name, index)) for index, tensor in enumerate(tensor_list(tensors, how.verb))
    ]
    return start_group(how.session, parts, stays)


def grouped_allreduce_async(
    tensors: Sequence[T],
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    compression: str | None = None,
) -> Handle[list[T]]:
    """Starts grouped_allreduce()."""
    how = ReductionArguments("grouped_allreduce", process_set, op, prescale_factor, postscale_factor, ALL, compression)
    return start_grouped_allreduce(allreduce_part, tensors, name, how, False)


def grouped_allreduce_async_(
    tensors: Sequence[T],
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    compression: str | None = None,
) -> Handle[list[T]]:
    """Starts grouped_allreduce_()."""
    how = ReductionArguments("grouped_allreduce", process_set, op, prescale_factor, postscale_factor, ALL, compression)
    return start_grouped_allreduce(allreduce_in_place_part, tensors, name, how, False)


def grouped_allreduce_(
    tensors: Sequence[T],
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    compression: str | None = None,
) -> list[T]:
    """As grouped_allreduce(), in place; returns the tensors."""
    how = ReductionArguments("grouped_allreduce", process_set, op, prescale_factor, postscale_factor, ALL, compression)
    handle = start_grouped_allreduce(allreduce_in_place_part, tensors, name, how, True)
    return list(handle.wait())


def reduce_async(
    tensor: T,
    root_rank: int = 0,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle[T | None]:
    """Starts reduce()."""
    how = ReductionArguments("reduce", process_set, op, prescale_factor, postscale_factor)
    root = checked_root(root_rank, how.verb, process_set)
    return start_one(how.session, reduce_part(how, tensor, name, root))


def reducescatter_async(
    tensor: T,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle[T]:
    """Starts reducescatter()."""
    how = ReductionArguments("reducescatter", process_set, op, prescale_factor, postscale_factor)
    return start_one(how.session, reducescatter_part(how, tensor, name))


def start_grouped_reducescatter(
    tensors: Sequence[Any], name: str | None, how: ReductionArguments, stays: bool
) -> Handle[list[Any]]:
    """One operation for all tensors."""
    parts = [
        reducescatter_part(how, tensor, name_in_group(name, index))
        for index, tensor in enumerate(tensor_list(tensors, how.verb))
    ]
    return start_group(how.session, parts, stays)


def grouped_reducescatter_async(
    tensors: Sequence[T],
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle[list[T]]:
    """Starts grouped_reducescatter()."""
    how = ReductionArguments("grouped_reducescatter", process_set, op, prescale_factor, postscale_factor)
    return start_grouped_reducescatter(tensors, name, how, False)

"""Tensors as the extension takes them: contiguous, in host memory, bytes where it does not know the dtype. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from ... import _core
from ..._arrays import framework_of
from ..._errors import bad_argument
from ..._parts import check_reducible, movable, reducible
from ._reduce_ops import Reduction


class Part(NamedTuple):
    """One operation of a work. ``request``: None where no element travels; ``finish(operation, index)``: puts results
    in place; None where they are."""

    request: _core.Request | None
    finish: Callable[[_core.Operation, int], None] | None = None


NOTHING = Part(None)
_count_write = getattr(torch.autograd.graph, "increment_version", None)


def _row(tensor: Any) -> Any:
    return framework_of(tensor)


def host_input(tensor: torch.Tensor, what: str) -> torch.Tensor:
    """The tensor itself where it is contiguous in host memory, else a copy. InvalidError for sparse ones."""
    if not isinstance(tensor, torch.Tensor):
        raise bad_argument(f"{what}: a {type(tensor).__name__} is no tensor", "pass tensors")
    _check_not_nested(tensor, what)
    return _row(tensor).contiguous(tensor, what)  # type: ignore[no-any-return]


def _check_not_nested(tensor: torch.Tensor, what: str) -> None:
    if tensor.is_nested:
        raise bad_argument(f"{what} is a nested tensor", "pass its values(), or one tensor for each part")


def host_in_place(tensor: torch.Tensor, what: str) -> torch.Tensor:
    """As host_input(), of a tensor that put_back() writes to. InvalidError where elements share memory."""
    host = host_input(tensor, what)
    _check_no_overlap(tensor, what)
    return host


def _check_no_overlap(tensor: torch.Tensor, what: str) -> None:
    if tensor.layout is torch.strided and any(n > 1 and not step for n, step in zip(tensor.shape, tensor.stride())):
        raise bad_argument(f"{what}: elements of the output share memory, as expand() makes them", "pass its clone()")


def host_output(tensor: torch.Tensor, what: str) -> torch.Tensor:
    """Where a result is written: the tensor itself, or memory that put_back() copies. Refuses as host_in_place()."""
    _check_not_nested(tensor, what)
    _check_no_overlap(tensor, what)
    prepared = host_input(tensor, what) if tensor.numel() == 0 else tensor.detach()
    plain = prepared.device.type == "cpu" and prepared.layout == torch.strided and prepared.is_contiguous()
    if plain and not prepared.is_conj() and not prepared.is_neg():
        return prepared
    if tensor.layout != torch.strided:
        raise bad_argument(f"{what} is sparse ({tensor.layout})", "pass a dense one")
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")


def put_back(host: torch.Tensor, tensor: torch.Tensor) -> None:
    """Copies the result of host_output() or host_input() into the tensor, unless it is there."""
    if host.device == tensor.device and host.data_ptr() == tensor.data_ptr():
        return
    tensor.detach().copy_(host.view(tensor.shape))


def put_back_counted(host: torch.Tensor, tensor: torch.Tensor) -> None:
    """put_back(), of which autograd hears: the version of the tensor grows, as with gloo."""
    put_back(host, tensor)
    if _count_write is not None and not tensor.is_inference():
        _count_write(tensor)


def wait_for_devices(tensors: Sequence[torch.Tensor]) -> None:
    """Until what this thread does with them on GPUs has ended."""
    for tensor in tensors:
        if tensor.is_cuda:
            torch.cuda.current_stream(tensor.device).synchronize()


def wire_of(host: torch.Tensor) -> Any:
    """What the extension reads or writes where values only move."""
    return movable(_row(host), host)


def elements_on_wire(host: torch.Tensor, elements: int) -> int:
    """How many elements of wire_of() these are."""
    native = wire_of(host[:0] if host.dim() else host.view(1)[:0]).dtype == host.dtype
    return elements if native else elements * host.element_size()


def check_same_kind(tensors: Sequence[torch.Tensor], dtype: torch.dtype, what: str) -> None:
    """InvalidError unless all have this dtype."""
    for tensor in tensors:
        if tensor.dtype != dtype:
            raise bad_argument(f"{what}: dtypes {dtype} and {tensor.dtype}", "pass tensors of one dtype")


def reduce_request(
    kind: int,
    name: str,
    source: torch.Tensor,
    target: torch.Tensor | None,
    how: Reduction,
    *,
    root: int = 0,
    row_elements: int = 1,
) -> _core.Request:
    """Of a reduction of host tensors."""
    row = _row(source)
    check_reducible(row, source, how.op, name)
    sent, dtype = reducible(row, source)
    result = None if target is None else reducible(row, target).array
    parts = 2 if source.is_complex() else 1
    return _core.Request(
        kind, name, sent, result, op=how.op, prescale=how.prescale, dtype=dtype, root=root,
        row_elements=row_elements * parts if row_elements > 1 else 1,
    )  # fmt: skip


def name_of(verb: str, tensor: torch.Tensor, *more: object) -> str:
    """Operations of one name are matched in their order; others have nothing to do with each other."""
    words = [verb, f"{str(tensor.dtype)[6:]}[{tensor.numel()}]", *map(str, more)]
    return " ".join(words)


def name_of_any_size(verb: str, tensor: torch.Tensor, *more: object) -> str:
    """Of operations that send their sizes along. Each name has memory, so a name for each size would fill it."""
    return " ".join([verb, str(tensor.dtype)[6:], *map(str, more)])

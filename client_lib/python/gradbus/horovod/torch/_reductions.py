"""All-reduce and reduce-scatter with Horovod's arguments, one tensor or a group.

Results and errors are those of the operations of ``gradbus`` of the same name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ... import _differentiable, _reductions
from ..._handles import Handle
from ..._ops import Average
from ..._parts import name_in_group, tensor_list
from ..._process_sets import ProcessSet, global_process_set
from .._arguments import checked_compressor, factors, reduce_op
from .._in_flight import started
from ._gradients import any_needs_gradient, with_total_gradient, without_gradient
from .compression import Compression

Tensor = torch.Tensor


def allreduce(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """The tensors of all ranks combined, as a new tensor. It has a gradient for Sum and Average.

    ``op`` is Average unless given; ``average`` is its deprecated form. With ``Compression.fp16`` the numbers are summed
    as float16, as in Horovod. Raises InvalidError for arguments, and what gradbus.allreduce() raises.
    """
    chosen = reduce_op("allreduce", op, average)
    compressor = checked_compressor("allreduce", compression)
    packed, context = compressor.compress(tensor)
    result = _differentiable.allreduce(packed, name, chosen, *factors(prescale_factor, postscale_factor), process_set)
    return compressor.decompress(result, context)  # type: ignore[no-any-return]


def allreduce_async(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle[Tensor]:
    """Starts allreduce(); synchronize() returns the result."""
    chosen = reduce_op("allreduce_async", op, average)
    scales = factors(prescale_factor, postscale_factor)
    return started(
        "allreduce", name, process_set,
        lambda: _reductions.allreduce_async(without_gradient(tensor), name, chosen, *scales, process_set),
    )  # fmt: skip


def allreduce_(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """As allreduce(), in place. Returns the tensor."""
    chosen = reduce_op("allreduce_", op, average)
    return _reductions.allreduce_(tensor, name, chosen, *factors(prescale_factor, postscale_factor), process_set)


def allreduce_async_(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle[Tensor]:
    """Starts allreduce_(). The tensor holds the result after synchronize()."""
    chosen = reduce_op("allreduce_async_", op, average)
    scales = factors(prescale_factor, postscale_factor)
    return started(
        "allreduce", name, process_set,
        lambda: _reductions.allreduce_async_(tensor, name, chosen, *scales, process_set),
    )  # fmt: skip


def grouped_allreduce(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Tensor]:
    """allreduce() of several tensors with one completion."""
    chosen = reduce_op("grouped_allreduce", op, average)
    scales = factors(prescale_factor, postscale_factor)
    compressor = checked_compressor("grouped_allreduce", compression)
    pairs = [compressor.compress(tensor) for tensor in tensor_list(tensors, "grouped_allreduce")]
    packed = [tensor for tensor, _ in pairs]
    results = _differentiable.grouped_allreduce(packed, name, chosen, *scales, process_set)
    return [compressor.decompress(result, context) for result, (_, context) in zip(results, pairs)]


def grouped_allreduce_async(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle[list[Tensor]]:
    """Starts grouped_allreduce()."""
    chosen = reduce_op("grouped_allreduce_async", op, average)
    return started(
        "allreduce", name, process_set,
        lambda: _reductions.grouped_allreduce_async(
            without_gradient(tensors), name, chosen, *factors(prescale_factor, postscale_factor), process_set
        ),
    )  # fmt: skip


def grouped_allreduce_(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Tensor]:
    """As grouped_allreduce(), in place. Returns the tensors."""
    chosen = reduce_op("grouped_allreduce_", op, average)
    scales = factors(prescale_factor, postscale_factor)
    return _reductions.grouped_allreduce_(tensors, name, chosen, *scales, process_set)


def grouped_allreduce_async_(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle[list[Tensor]]:
    """Starts grouped_allreduce_()."""
    chosen = reduce_op("grouped_allreduce_async_", op, average)
    return started(
        "allreduce", name, process_set,
        lambda: _reductions.grouped_allreduce_async_(
            tensors, name, chosen, *factors(prescale_factor, postscale_factor), process_set
        ),
    )  # fmt: skip


def reducescatter(
    tensor: Tensor,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Tensor:
    """As allreduce(), and each rank gets its rows of the result. The first ranks get one row more.

    The gradient is Horovod's: the all-gather of the gradients, times the number of ranks for Sum.
    """
    chosen = reduce_op("reducescatter", op)
    scales = factors(prescale_factor, postscale_factor)
    compressor = checked_compressor("reducescatter", compression)
    packed, context = compressor.compress(with_total_gradient(tensor, process_set))
    result = _differentiable.reducescatter(packed, name, chosen, *scales, process_set)
    return compressor.decompress(result, context)  # type: ignore[no-any-return]


def reducescatter_async(
    tensor: Tensor,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle[Tensor]:
    """Starts reducescatter()."""
    chosen = reduce_op("reducescatter_async", op)
    scales = factors(prescale_factor, postscale_factor)
    return started(
        "reducescatter", name, process_set,
        lambda: _reductions.reducescatter_async(without_gradient(tensor), name, chosen, *scales, process_set),
    )  # fmt: skip


def grouped_reducescatter(
    tensors: Sequence[Tensor],
    name: str | None = None,
    compression: Any = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Tensor]:
    """reducescatter() of several tensors. They are one operation unless a tensor needs a gradient."""
    chosen = reduce_op("grouped_reducescatter", op)
    compressor = checked_compressor("grouped_reducescatter", compression)
    given = tensor_list(tensors, "grouped_reducescatter")
    if any_needs_gradient(given):
        return [
            reducescatter(
                tensor, name_in_group(name, index), compressor, chosen, process_set, prescale_factor, postscale_factor
            )
            for index, tensor in enumerate(given)
        ]
    pairs = [compressor.compress(tensor) for tensor in given]
    results = _differentiable.grouped_reducescatter(
        [tensor for tensor, _ in pairs], name, chosen, *factors(prescale_factor, postscale_factor), process_set
    )
    return [compressor.decompress(result, context) for result, (_, context) in zip(results, pairs)]


def grouped_reducescatter_async(
    tensors: Sequence[Tensor],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle[list[Tensor]]:
    """Starts grouped_reducescatter()."""
    chosen = reduce_op("grouped_reducescatter_async", op)
    return started(
        "reducescatter", name, process_set,
        lambda: _reductions.grouped_reducescatter_async(
            without_gradient(tensors), name, chosen, *factors(prescale_factor, postscale_factor), process_set
        ),
    )  # fmt: skip

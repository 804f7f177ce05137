"""Arguments that several functions of Horovod have."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

from .._errors import bad_argument
from .._ops import (
    Adasum,
    Average,
    Compression,
    Max,
    Min,
    Product,
    ReduceOp,
    Sum,
    ZeroFactor,
    checked_factor,
    whole_number,
)
from ._compression import HalfCompressor, NoneCompressor

# Horovod's numbers that cannot be mistaken. Its Adasum is 2, as int(hvd.Average) is.
_BY_NUMBER: dict[int | None, ReduceOp] = {0: Average, 1: Sum, 3: Min, 4: Max, 5: Product}


def reduce_op(verb: str, op: int | None, average: bool | None = None) -> ReduceOp:
    """The operation that is meant by ``op`` and by ``average``, its older form.

    Bare numbers are those of Horovod. Raises InvalidError for both at once, and for 2, which means Adasum in Horovod
    and is the number of Gradbus's mean.
    """
    if average is not None:
        if op is not None:
            raise bad_argument(f"{verb}: average={average!r} and op={op!r} are both given", "pass op= only")
        warnings.warn("average= is deprecated; pass op=hvd.Average or op=hvd.Sum", DeprecationWarning, stacklevel=3)
        return Average if average else Sum
    if op is None:
        return Average
    if isinstance(op, ReduceOp):
        return op
    number = None if isinstance(op, bool) else whole_number(op)
    if number not in _BY_NUMBER:
        raise bad_argument(f"{verb}: op={op!r} is not one of Gradbus", "pass hvd.Average, hvd.Sum or another by name")
    return _BY_NUMBER[number]


def factors(prescale: Any, postscale: Any) -> tuple[Any, Any]:
    """Both factors of a reduction. Horovod takes 0, which Gradbus refuses elsewhere."""
    return _factor(prescale), _factor(postscale)


def _factor(given: Any) -> Any:
    return ZeroFactor() if isinstance(given, (int, float)) and given == 0 else given


def rows_to_send(tensor: Any, splits: Any) -> Any:
    """The first rows of a tensor, up to the sum of the splits of alltoall(). Wrong splits are refused later."""
    given = splits.asnumpy() if hasattr(splits, "asnumpy") else splits
    numbers = [whole_number(split) for split in given] if isinstance(given, Iterable) else []
    counts = [number for number in numbers if number is not None and number >= 0]
    is_shorter = 0 < len(counts) == len(numbers) and sum(counts) < sum(getattr(tensor, "shape", ())[:1])
    return tensor[: sum(counts)] if is_shorter else tensor


def checked_compressor(verb: str, compression: Any) -> Any:
    """The compressor. Raises InvalidError for an object without compress() and decompress()."""
    if hasattr(compression, "compress") and hasattr(compression, "decompress"):
        return compression
    raise bad_argument(
        f"{verb}: compression={compression!r} is no compressor", "pass hvd.Compression.none or hvd.Compression.fp16"
    )


def mean_or_sum(verb: str, op: int, predivide: float) -> ReduceOp:
    """The operation of an optimizer. Raises InvalidError for others, and for a factor without a mean."""
    chosen = reduce_op(verb, op)
    if chosen is Adasum:
        raise bad_argument(
            f"{verb}: op=hvd.Adasum adds changes of parameters, which Gradbus has for single tensors only",
            "pass op=hvd.Average, or call hvd.allreduce(change, op=hvd.Adasum) yourself after a local step",
        )
    if checked_factor(predivide, "gradient_predivide_factor", verb) != 1 and chosen is not Average:
        raise bad_argument(f"{verb}: gradient_predivide_factor={predivide!r} needs a mean", "pass op=hvd.Average")
    return chosen


def is_own_compressor(compression: Any) -> bool:
    """Whether it is Python code, and not one of hvd.Compression, which agents do."""
    if compression is NoneCompressor or (isinstance(compression, type) and HalfCompressor in compression.__bases__):
        return False
    return hasattr(compression, "compress") and hasattr(compression, "decompress")


def codec_of(verb: str, compression: Any) -> str | None:
    """The codec of Gradbus; None: the job's policy decides."""
    if compression is None or compression is NoneCompressor:
        return None
    if isinstance(compression, type) and HalfCompressor in compression.__bases__:
        return Compression.fp16
    if isinstance(compression, str):
        return compression
    raise bad_argument(
        f"{verb}: compression={compression!r} is Python code, and agents compress gradients",
        'pass hvd.Compression.fp16, or a codec of Gradbus such as "topk:ratio=0.01"',
    )


def number_of_groups(verb: str, num_groups: int, groups: Any, tensor_type: type) -> int:
    """How many groups are asked for; 0: any. Lists of tensors are accepted with a warning."""
    if num_groups:
        warnings.warn("num_groups= is deprecated; pass groups=", DeprecationWarning, stacklevel=4)
    asked = num_groups if groups is None else groups
    if isinstance(asked, int) and not isinstance(asked, bool) and asked >= 0:
        return asked
    if not isinstance(asked, (list, tuple)) or not all(_is_group(group, tensor_type) for group in asked):
        raise bad_argument(f"{verb}: groups={asked!r}", "pass a number of groups, or lists of tensors")
    tensors = [id(tensor) for group in asked for tensor in group]
    if len(set(tensors)) != len(tensors):
        raise bad_argument(f"{verb}: a parameter is in groups= twice", "name each parameter once")
    warnings.warn(
        f"{verb}: the {len(asked)} lists in groups= change nothing: Gradbus forms its own buckets, with the same "
        "results | next: leave groups out, or pass a number of groups",
        RuntimeWarning,
        stacklevel=4,
    )
    return 0


def _is_group(group: Any, tensor_type: type) -> bool:
    return isinstance(group, (list, tuple)) and all(isinstance(tensor, tensor_type) for tensor in group)

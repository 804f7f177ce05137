"""Arguments that several functions of Horovod have."""

from __future__ import annotations

import warnings
from typing import Any

from ..._errors import bad_argument
from ..._ops import Average, ReduceOp, Sum


def reduce_op(verb: str, op: int | None, average: bool | None = None) -> ReduceOp:
    """The operation that is meant by ``op`` and by ``average``, its older form.

    Raises InvalidError for both at once, and for a bare number: Horovod and Gradbus number operations differently.
    """
    if average is not None:
        if op is not None:
            raise bad_argument(f"{verb}: average={average!r} and op={op!r} are both given", "pass op= only")
        warnings.warn("average= is deprecated; pass op=hvd.Average or op=hvd.Sum", DeprecationWarning, stacklevel=3)
        return Average if average else Sum
    if op is None:
        return Average
    if not isinstance(op, ReduceOp):
        raise bad_argument(f"{verb}: op={op!r} is not one of Gradbus", "pass hvd.Average, hvd.Sum or another by name")
    return op


def checked_compressor(verb: str, compression: Any) -> Any:
    """The compressor. Raises InvalidError for an object without compress() and decompress()."""
    if hasattr(compression, "compress") and hasattr(compression, "decompress"):
        return compression
    raise bad_argument(
        f"{verb}: compression={compression!r} is no compressor", "pass hvd.Compression.none or hvd.Compression.fp16"
    )

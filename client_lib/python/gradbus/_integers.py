"""Integers of 16 bits, and unsigned ones of 32 and 64, which travel as wider or signed ones in reductions.

The results are those of the integers themselves: sums and products modulo 2 to the power of their bits.
Means are of the exact sum, except of uint64, whose sum wraps.
"""

from __future__ import annotations

from typing import Any

from ._arrays import Framework
from ._ops import Average, Max, Min, ReduceOp, Sum

_WIDER = {"int16": "int32", "uint16": "int32", "uint32": "int64", "uint64": "int64"}
INTEGERS = ("int32", "int64", "int8", "uint8", *_WIDER)
_TOP_BIT = -(1 << 63)


class Width:
    """How integers of one dtype travel in one reduction."""

    def __init__(self, dtype: str, op: ReduceOp) -> None:
        self._dtype = dtype
        self._given = op
        self._full = dtype == "uint64"
        self.op = Sum if self._full and op is Average else op
        # In int64 the order of uint64 is right when the top bit is turned over.
        self._turned = self._full and op in (Min, Max)

    def widen(self, framework: Framework, array: Any) -> Any:
        """A new array of the wider dtype."""
        wide = framework.cast(array, _WIDER[self._dtype])
        return wide ^ _TOP_BIT if self._turned else wide

    def narrow(self, framework: Framework, result: Any, size: int) -> Any:
        """A new array of the dtype; ``size``: of the world."""
        if self._turned:
            result = result ^ _TOP_BIT
        narrow = framework.cast(result, self._dtype)
        if self.op is self._given:
            return narrow
        return framework.divided(narrow, size)


def width_of(dtype: str, op: ReduceOp) -> Width | None:
    """None for dtypes that travel as they are."""
    return Width(dtype, op) if dtype in _WIDER else None

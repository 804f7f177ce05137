"""How values are combined, and the checks of arguments that all operations share."""

from __future__ import annotations

import enum
import functools
import math
import operator
from collections.abc import Sequence

from ._errors import bad_argument


class ReduceOp(enum.IntEnum):
    """How reductions combine; numbers of the C interface."""

    SUM = 1
    AVERAGE = 2
    MIN = 3
    MAX = 4
    PRODUCT = 5
    BIT_AND = 6
    BIT_OR = 7
    ADASUM = 8


Sum = ReduceOp.SUM
Average = ReduceOp.AVERAGE
Min = ReduceOp.MIN
Max = ReduceOp.MAX
Product = ReduceOp.PRODUCT
BitAnd = ReduceOp.BIT_AND
BitOr = ReduceOp.BIT_OR
Adasum = ReduceOp.ADASUM

OF_FLOATS = (Sum, Average, Min, Max, Product, Adasum)
OF_INTEGERS = (Sum, Average, Min, Max, Product, BitAnd, BitOr)
OF_COMPLEX = (Sum, Average)
OF_BOOLS = (Min, Max, BitAnd, BitOr)
ALL = tuple(ReduceOp)
ALL_BUT_ADASUM = tuple(op for op in ReduceOp if op is not Adasum)


def op_names(ops: Sequence[ReduceOp]) -> str:
    """``gradbus.Sum or gradbus.BitAnd``"""
    names = ["gradbus." + op.name.title().replace("_", "") for op in ops]
    return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def checked_op(op: int, verb: str, allowed: Sequence[ReduceOp] = ALL) -> ReduceOp:
    """The operation, or an InvalidError naming it and those that the call knows."""
    if isinstance(op, int) and not isinstance(op, bool) and op in allowed:
        return ReduceOp(op)
    raise bad_argument(f"{verb}: op={op!r}", f"pass {op_names(allowed)}")


class ZeroFactor(float):
    """A factor of 0 that is meant. Horovod allows it; results are zeros then."""

    def __new__(cls) -> ZeroFactor:
        return super().__new__(cls, 0.0)


def checked_factor(factor: float, name: str, what: str) -> float:
    """A scale factor as a float; 0 is refused, since it would throw away what other ranks send."""
    if isinstance(factor, ZeroFactor):
        return factor
    try:
        value = float(factor)
    except (TypeError, ValueError):
        value = 0.0
    if value == 0 or not math.isfinite(value):
        raise bad_argument(
            f"{what}: {name}={factor!r} is no finite number other than 0", f"pass {name}=1.0"
        )
    return value


def whole_number(value: object) -> int | None:
    """The integer behind a Python, numpy or torch integer; None for anything else."""
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None


class Compression:
    """Names for ``compression=``. It also takes a text with options, such as ``"topk:ratio=0.01"``.

    Gradients are compressed between nodes; ranks of one node share memory.
    """

    none = "none"
    fp16 = "fp16"
    bf16 = "bf16"
    fp8 = "fp8"
    int8 = "int8"
    topk = "topk"
    dgc = "dgc"
    onebit = "onebit"
    efsignsgd = "efsignsgd"
    powersgd = "powersgd"


def checked_compression(compression: str | None, verb: str, may_choose: bool = False) -> str | None:
    """The text; what is wrong inside it is said when the tensor is registered. ``may_choose``: it may be a choice."""
    if isinstance(compression, str) and is_choice(compression) and not may_choose:
        raise bad_argument(
            f"{verb}: compression={compression[:80]!r} is a choice, which PyTorch's DistributedOptimizer makes only",
            "name one codec",
        )
    if compression is None or isinstance(compression, str):
        return compression
    raise bad_argument(
        f"{verb}: compression={compression!r}", 'pass gradbus.Compression.fp16 or "topk:ratio=0.01"'
    )


def codecs_in(text: str) -> list[str]:
    """Of a list such as ``"fp16,topk:ratio=0.01,ef=none"``: options belong to the codec before them."""
    parts: list[str] = []
    for part in text.split(","):
        is_option = "=" in part and ":" not in part.partition("=")[0]
        if parts and is_option:
            parts[-1] += f",{part}"
        else:
            parts.append(part)
    return parts


@functools.lru_cache(maxsize=64)
def is_choice(text: str) -> bool:
    """Whether a compression leaves the choice to the training: ``"auto"``, or a list."""
    parts = codecs_in(text)
    return len(parts) > 1 or parts[0].partition(":")[0] == "auto"

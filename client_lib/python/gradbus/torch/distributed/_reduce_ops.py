"""torch's reduce operations as Gradbus's. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.distributed import ReduceOp as TorchOp

from ..._errors import bad_argument
from ..._ops import Average, BitAnd, BitOr, Max, Min, Product, ReduceOp, Sum

_OPS = {
    TorchOp.RedOpType.SUM: Sum,
    TorchOp.RedOpType.AVG: Average,
    TorchOp.RedOpType.PRODUCT: Product,
    TorchOp.RedOpType.MIN: Min,
    TorchOp.RedOpType.MAX: Max,
    TorchOp.RedOpType.BAND: BitAnd,
    TorchOp.RedOpType.BOR: BitOr,
    TorchOp.RedOpType.PREMUL_SUM: Sum,
}
# As torch's other backends: a sum of truth values is "or", a product is "and".
_OF_BOOLS = {Sum: BitOr, Product: BitAnd}


class Reduction(NamedTuple):
    """``fold``: instead of ``op``, how to combine two tensors, where agents cannot."""

    op: ReduceOp
    prescale: float = 1.0
    fold: Any = None


def reduction_of(given: Any, dtype: torch.dtype, verb: str) -> Reduction:
    """InvalidError for what torch does not define, either."""
    kind = getattr(given, "op", given)
    if kind == TorchOp.RedOpType.BXOR:
        if dtype.is_floating_point or dtype.is_complex:
            raise bad_argument(f"{verb}: BXOR of {dtype}", "use it with integers or bool")
        return Reduction(BitOr, fold=torch.bitwise_xor)
    op = _OPS.get(kind)
    if op is None:
        raise bad_argument(f"{verb}: op={given!r}", "use one of torch.distributed.ReduceOp")
    if dtype == torch.bool:
        op = _OF_BOOLS.get(op, op)
    if kind == TorchOp.RedOpType.PREMUL_SUM:
        if not dtype.is_floating_point:
            raise bad_argument(f"{verb}: PREMUL_SUM of {dtype}", "multiply before the call")
        return Reduction(op, float(given.factor))
    return Reduction(op)

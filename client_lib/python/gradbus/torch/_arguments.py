"""Checks of DistributedOptimizer's arguments."""

from __future__ import annotations

import os
from collections.abc import Iterable

import torch

from .._errors import bad_argument
from ._buckets.layout import DEFAULT_BUCKET_BYTES
from ._buckets.parameter_info import NamedParameter


def bucket_bytes_or_default(asked: int | None) -> int:
    """What was asked for, else HOROVOD_FUSION_THRESHOLD, else the default. InvalidError for no number."""
    if asked is not None:
        return asked
    threshold = os.environ.get("HOROVOD_FUSION_THRESHOLD", "").strip()
    if not threshold:
        return DEFAULT_BUCKET_BYTES
    if not threshold.isascii() or not threshold.isdigit():
        raise bad_argument(
            f"DistributedOptimizer: HOROVOD_FUSION_THRESHOLD={threshold[:40]!r} is no number of bytes",
            "set it to bytes, such as 8388608, or pass bucket_bytes=",
        )
    return max(int(threshold), 1)  # 0: no fusion


def sparse_of(
    parameters: Iterable[torch.nn.Parameter], named: list[NamedParameter]
) -> frozenset[torch.nn.Parameter]:
    """The parameters of ``sparse_parameters``; InvalidError for one that the optimizer does not have."""
    sparse = frozenset(parameters)
    for parameter in sparse - {parameter for _, parameter in named}:
        shape = tuple(parameter.shape) if isinstance(parameter, torch.Tensor) else repr(parameter)
        raise bad_argument(
            f"DistributedOptimizer: one of sparse_parameters, {shape}, is none that it exchanges",
            "pass parameters of this optimizer, as in sparse_parameters=[model.embedding.weight]",
        )
    return sparse


def check_wait(wait: str, check_every: int) -> None:
    """Raises InvalidError."""
    if wait not in ("backward", "step"):
        raise bad_argument(
            f"DistributedOptimizer: wait={wait!r}", 'pass "backward" (the default) or "step"'
        )
    if not isinstance(check_every, int) or check_every < 0:
        raise bad_argument(
            f"DistributedOptimizer: check_every={check_every!r}",
            "pass a number of steps, or 0 to compare the replicas in the first step only",
        )


def check_reduce_dtype(reduce_dtype: torch.dtype | None) -> None:
    """Raises InvalidError."""
    if reduce_dtype not in (None, torch.float32):
        raise bad_argument(
            f"DistributedOptimizer: reduce_dtype={reduce_dtype!r}",
            "pass torch.float32, or None to sum gradients in their own dtype",
        )

"""Checks of DistributedOptimizer's arguments."""

from __future__ import annotations

import os
from collections.abc import Iterable

import torch

from .._errors import bad_argument
from ._buckets.parameter_info import NamedParameter
from ._schedules import Schedule


def bucket_bytes_of(asked: int | None, schedule: Schedule) -> int | None:
    """What was asked for, else HOROVOD_FUSION_THRESHOLD, else None: the schedule's. InvalidError for no number."""
    if asked is not None:
        return asked
    threshold = os.environ.get("HOROVOD_FUSION_THRESHOLD", "").strip()
    if not threshold or schedule.name not in ("fusion", "auto"):
        return None
    if not threshold.isascii() or not threshold.isdigit():
        raise bad_argument(
            f"DistributedOptimizer: HOROVOD_FUSION_THRESHOLD={threshold[:40]!r} is no number of bytes",
            "set it to bytes, such as 8388608, or pass bucket_bytes=",
        )
    return max(int(threshold), 1)  # 0: no fusion


def check_positive(name: str, value: object) -> None:
    """Raises InvalidError."""
    if not isinstance(value, int) or value < 1:
        raise bad_argument(f"DistributedOptimizer: {name}={value!r}", "pass a positive integer")


def check_bucket_bytes(asked: object) -> None:
    """None is a choice, too. Raises InvalidError."""
    if asked is not None:
        check_positive("bucket_bytes", asked)


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


def check_options(wait: str, check_every: int, reduce_dtype: torch.dtype | None, replicas: str) -> None:
    """Raises InvalidError."""
    if replicas not in ("equal", "any"):
        raise bad_argument(f"DistributedOptimizer: replicas={replicas!r}", 'pass "equal" (the default) or "any"')
    if wait not in ("backward", "step"):
        raise bad_argument(
            f"DistributedOptimizer: wait={wait!r}", 'pass "backward" (the default) or "step"'
        )
    if not isinstance(check_every, int) or check_every < 0:
        raise bad_argument(
            f"DistributedOptimizer: check_every={check_every!r}",
            "pass a number of steps, or 0 to compare the replicas in the first step only",
        )
    if reduce_dtype not in (None, torch.float32):
        raise bad_argument(
            f"DistributedOptimizer: reduce_dtype={reduce_dtype!r}",
            "pass torch.float32, or None to sum gradients in their own dtype",
        )

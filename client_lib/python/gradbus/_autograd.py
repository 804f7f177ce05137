"""A function of torch's autograd whose forward and backward are given. Imported when it is needed first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class _Function(torch.autograd.Function):
    """``run(*tensors)`` gives the results, ``back(*gradients)`` the gradients of the tensors."""

    @staticmethod
    def forward(ctx: Any, run: Callable[..., Any], back: Callable[..., Any], *tensors: Any) -> Any:
        ctx.back = back
        return run(*tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return (None, None, *ctx.back(*gradients))


def apply(run: Callable[..., Any], back: Callable[..., Any], *tensors: Any) -> Any:
    """``run(*tensors)``, of which ``back(*gradients)`` gives the gradients of the tensors."""
    return _Function.apply(run, back, *tensors)

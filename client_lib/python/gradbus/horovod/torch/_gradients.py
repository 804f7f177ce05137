"""The gradients of Horovod's collectives, where they differ from the true ones by the number of ranks.

The gradient of allgather() and of broadcast() is a mean over the ranks in Horovod, where the sum of all losses would
give a sum. That of reducescatter() is larger by the number of ranks. Scripts have set their learning rates by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..._arrays import needs_gradient
from ..._process_sets import ProcessSet, session_of


class _ScaledGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, factor: float) -> torch.Tensor:
        ctx.factor = factor
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override,unused-ignore]
        return gradient * ctx.factor, None


def with_mean_gradient(tensor: torch.Tensor, process_set: ProcessSet) -> torch.Tensor:
    """The tensor. Its gradient will be divided by the size of the set."""
    return _scaled(tensor, 1.0 / session_of(process_set, "backward").size)


def with_total_gradient(tensor: torch.Tensor, process_set: ProcessSet) -> torch.Tensor:
    """The tensor. Its gradient will be multiplied by the size of the set."""
    return _scaled(tensor, float(session_of(process_set, "backward").size))


def _scaled(tensor: torch.Tensor, factor: float) -> torch.Tensor:
    if not isinstance(tensor, torch.Tensor) or not needs_gradient(tensor):
        return tensor
    return _ScaledGradient.apply(tensor, factor)  # type: ignore[no-any-return,no-untyped-call,unused-ignore]


def without_gradient(given: Any) -> Any:
    """A tensor, or each of a list, as the forms with a handle take it: their results have no gradient in Horovod."""
    if isinstance(given, (list, tuple)):
        return [without_gradient(each) for each in given]
    return given.detach() if isinstance(given, torch.Tensor) else given


def any_needs_gradient(tensors: Sequence[Any]) -> bool:
    """Whether autograd is to see what happens to one of them."""
    return any(needs_gradient(tensor) for tensor in tensors)

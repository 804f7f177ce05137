"""A function of torch's autograd whose forward and backward are given. Imported when it is needed first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ._errors import bad_argument


class _Function(torch.autograd.Function):
    """``run(*tensors)`` gives the results, ``back(*gradients)`` the gradients of the tensors."""

    @staticmethod
    def forward(ctx: Any, run: Callable[..., Any], back: Callable[..., Any], *tensors: Any) -> Any:
        ctx.back = back
        results = run(*tensors)
        if results is tensors[0]:
            ctx.mark_dirty(results)
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return (None, None, *ctx.back(*gradients))


def apply(run: Callable[..., Any], back: Callable[..., Any], *tensors: Any) -> Any:
    """``run(*tensors)``, of which ``back(*gradients)`` gives the gradients of the tensors."""
    return _Function.apply(run, back, *tensors)


def _refusal(what: str) -> Callable[..., Any]:
    def back(*_: Any) -> Any:
        raise bad_argument(
            f"{what} has no gradient: the forms with a handle and in place have none",
            f"call gradbus.{what.partition(':')[0]}(), which has one, or pass the tensor .detach()",
        )

    return back


def new_without_gradient(tensor: Any, result: Any, what: str) -> Any:
    """A result that was made of the tensor. A backward pass that reaches it raises InvalidError."""
    with torch.enable_grad():
        return apply(lambda _: result, _refusal(what), tensor)


def overwritten_without_gradient(tensor: Any, what: str) -> None:
    """A tensor that is overwritten. A backward pass that reaches it as it is from now on raises InvalidError.

    The parameter that a model holds is only given other values, as under ``no_grad()``.
    """
    if not tensor.is_leaf and (tensor._base is None or not tensor._base.is_leaf):
        apply(lambda same: same, _refusal(what), tensor)

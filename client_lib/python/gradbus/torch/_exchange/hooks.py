"""Hooks that run before and after backward accumulates into ``.grad``, in every torch there is."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch


@contextlib.contextmanager
def _trainable(parameter: torch.nn.Parameter) -> Iterator[None]:
    """torch gives no hooks to a parameter that is frozen. Hooks stay when it is frozen, for the time after that."""
    frozen = not parameter.requires_grad
    if frozen:
        parameter.requires_grad_(True)
    try:
        yield
    finally:
        if frozen:
            parameter.requires_grad_(False)


def before_accumulation(parameter: torch.nn.Parameter, call: Callable[..., None]) -> Any:
    """Has ``call`` run with each gradient, before backward accumulates it."""
    with _trainable(parameter):
        return parameter.register_hook(call)  # type: ignore[no-untyped-call]


def after_accumulation(parameter: torch.nn.Parameter, call: Callable[..., None]) -> Any:
    """Has ``call`` run whenever backward has accumulated into ``parameter.grad``. Its arguments mean nothing."""
    with _trainable(parameter):
        register = getattr(parameter, "register_post_accumulate_grad_hook", None)
        if register is not None:  # torch >= 2.1
            return register(call)
        # Older: the node that accumulates is reachable through any function of the parameter.
        function: Any = parameter.expand_as(parameter).grad_fn
        node = function.next_functions[0][0]
        return _NodeHook(node, node.register_hook(call))


def has_later_ones(parameter: torch.nn.Parameter, hook: Any) -> bool:
    """Whether hooks that were registered after this one still run for this gradient."""
    hooks = getattr(parameter, "_post_accumulate_grad_hooks", None)
    return bool(hooks) and next(reversed(hooks)) != hook.id


class _NodeHook:
    """Keeps the accumulating node alive: the parameter holds it only weakly."""

    def __init__(self, node: Any, hook: Any) -> None:
        self._node = node
        self._hook = hook

    def remove(self) -> None:
        self._hook.remove()
        self._node = None

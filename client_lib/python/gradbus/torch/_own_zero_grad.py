"""A user's class of optimizers may have a zero_grad() of its own, for example to forget gradients of samples."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch


def zero_by_own(method: Callable[..., Any], set_to_none: bool) -> bool:
    """Calls ``super().zero_grad`` of a wrapper if it is not torch's. True: it was called."""
    if getattr(method, "__func__", None) is torch.optim.Optimizer.zero_grad:
        return False
    arguments = inspect.signature(method).parameters
    takes_it = "set_to_none" in arguments or any(a.kind is a.VAR_KEYWORD for a in arguments.values())
    method(set_to_none=set_to_none) if takes_it else method()
    return True

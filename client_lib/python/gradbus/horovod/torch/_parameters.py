"""broadcast_parameters() and broadcast_optimizer_state() with Horovod's arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from ...torch import _broadcast


def broadcast_parameters(params: Mapping[str, Any] | Iterable[Any], root_rank: int) -> None:
    """Overwrites every tensor with the root's, in place.

    ``params`` is a ``state_dict()``, ``named_parameters()``, or tensors without names in the same order on all ranks.
    Raises InvalidError (an entry is no tensor), MismatchError (ranks differ), PeerLostError, TimeoutError.
    """
    if isinstance(params, torch.nn.Module):
        _broadcast.broadcast_parameters(params, root_rank)
        return
    if isinstance(params, Mapping):  # by name: ranks may have them in other orders
        _broadcast.broadcast_parameters(sorted(params.items()), root_rank)
        return
    named = [pair if isinstance(pair, tuple) else (f"tensor{index}", pair) for index, pair in enumerate(params)]
    _broadcast.broadcast_parameters(named, root_rank)


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer, root_rank: int, model: torch.nn.Module | None = None
) -> None:
    """Gives every rank the root's optimizer state and options.

    ``model`` is not needed: no step is made to create the state. As after Horovod's step on zeros, gradients that
    were None are zeros then. Errors: gradbus.torch.broadcast_optimizer_state().
    """
    had_none = not optimizer.state
    _broadcast.broadcast_optimizer_state(optimizer, root_rank)
    for group in optimizer.param_groups if had_none else ():
        for parameter in group["params"]:
            if parameter.requires_grad and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)

"""What a step depends on, as numbers that ranks can compare: values, options and the state of an optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .. import _core

_WORD = 1 << 64
# They choose an implementation, which a rank may do for itself, or are about names.
_OWN_OPTIONS = frozenset({"params", "param_names", "foreach", "fused", "capturable", "differentiable"})
_PLAIN = (bool, int, float, complex, str, type(None))


def hash_of(thing: torch.Tensor | str) -> int:
    """64 bits with a sign."""
    if isinstance(thing, str):
        return _signed(_core.hash_bytes(thing.encode()))
    elements = thing.detach().cpu().contiguous()
    if elements.layout is not torch.strided:
        elements = elements.to_dense()
    if elements.is_complex():
        elements = torch.view_as_real(elements)
    return _signed(_core.hash_bytes(elements.reshape(-1).view(torch.uint8)))


def hash_of_list(hashes: Sequence[int]) -> int:
    """64 bits with a sign."""
    return _signed(_core.hash_bytes(torch.tensor(hashes, dtype=torch.int64, device="cpu")))


def _signed(number: int) -> int:
    return number - _WORD if number >= _WORD // 2 else number


def options_of(optimizer: Any) -> list[tuple[str, str]]:
    """The class, and each option of each group that a step depends on, with its value."""
    options = [("the optimizer's class", type(optimizer).__name__)]
    for number, group in enumerate(optimizer.param_groups):
        options.append((f"the number of parameters of group {number}", str(len(group["params"]))))
        for key in sorted(set(group) - _OWN_OPTIONS):
            text = state_text(group[key])
            options.append((f"option '{key}' of parameter group {number}", text))
    return options


def state_text(value: Any) -> str:
    """The same for the same values. What is neither a number, a word nor a tensor does not count."""
    if isinstance(value, torch.Tensor):
        return str(value.tolist()) if value.numel() == 1 else f"#{hash_of(value)}"
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {state_text(value[key])}" for key in sorted(value, key=str)) + "}"
    if isinstance(value, (list, tuple)):
        return "(" + ", ".join(map(state_text, value)) + ")"
    return ""

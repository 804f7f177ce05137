"""Steps of an optimizer on some of its parameters, with the options of an earlier time.

Only for optimizers that step each parameter by itself. Torch's do. Another class says so by an attribute
``steps_each_parameter_alone = True``. One that counts its steps in a parameter group would count too many.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import Any

import torch

from ._exchange.deferred import StepPart
from ._exchange.first_use import is_compiled
from ._exchange.holders import are_read_elsewhere, is_state_held, sees_all_readers
from ._exchange.plain_thread import is_plain
from ._exchange.uncompiled import keep_module_out_of_compiler

_optimizers = sys.modules[torch.optim.Optimizer.__module__]


def without_hooks(step: Any) -> Any:
    """The step() of a class without torch's wrapper around it, which calls the hooks of now."""
    is_wrapper = getattr(step, "hooked", False) and getattr(step, "__globals__", None) is vars(_optimizers)
    return step.__wrapped__ if is_wrapper else step


def _is_torchs(function: Any) -> bool:
    """It, and all that it is wrapped around."""
    while function is not None:
        if not getattr(function, "__globals__", {}).get("__name__", "").startswith("torch."):
            return False
        function = getattr(function, "__wrapped__", None)
    return True


def _step_of_torch(plain: Any) -> Any:
    """None if somebody has replaced it already."""
    step = without_hooks(plain.step)
    return step if _is_torchs(step) else None


_ALONE = {
    getattr(torch.optim, name): _step_of_torch(getattr(torch.optim, name))
    for name in (
        "SGD", "Adam", "AdamW", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "ASGD",
        "Adafactor", "Muon",
    )
    if hasattr(torch.optim, name)
}  # fmt: skip


@functools.cache
def _references_to_state() -> int:
    """By an optimizer and one local variable. Not at import: torch's first optimizer imports its compiler."""
    holder = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1, device="cpu"))], lr=0.0)
    state = holder.__dict__.get("state", {})
    return sys.getrefcount(state)


def steps_alone(plain: type) -> bool:
    """Whether optimizers of this class step each parameter by itself."""
    return plain in _ALONE or getattr(plain, "steps_each_parameter_alone", False) is True


def _is_as_made(plain: Any) -> bool:
    """Nobody has replaced the step() of this class of torch's. functools.wraps copies its marks, so it is compared."""
    return plain not in _ALONE or without_hooks(plain.step) is _ALONE[plain]


def may_step_parts(optimizer: Any, plain: type) -> bool:
    """Whether nobody else takes part in this step, or would miss it if it came later.

    Such are a step() that replaces torch's, hooks, a gradient scaler, torch.compile, other tensors of the parameters'
    memory, and whoever keeps a part of ``optimizer.state``.
    """
    hooks = any(
        getattr(holder, f"{prefix}_{when}_hooks", None)
        for holder, prefix in ((optimizer, "_optimizer_step"), (_optimizers, "_global_optimizer"))
        for when in ("pre", "post")
    )
    scaled = getattr(optimizer, "grad_scale", None) is not None or getattr(optimizer, "found_inf", None) is not None
    differentiable = any(group.get("differentiable", False) for group in optimizer.param_groups)
    if hooks or scaled or differentiable or is_compiled() or not steps_alone(plain):
        return False
    if not _is_as_made(plain) or not sees_all_readers() or not is_plain():
        return False
    state = optimizer.__dict__.get("state", {})
    if sys.getrefcount(state) > _references_to_state() or is_state_held(state):
        return False
    return not are_read_elsewhere(p for group in optimizer.param_groups for p in group["params"])


def step_part(optimizer: Any, plain: type) -> StepPart:
    """A function that steps the parameters it is given, with the options of now. It does not hold the optimizer."""
    options = [_copied(group) for group in optimizer.param_groups]
    group_of = {p: number for number, group in enumerate(optimizer.param_groups) for p in group["params"]}

    def step(optimizer: Any, parameters: Sequence[torch.nn.Parameter]) -> None:
        groups: dict[int, list[torch.nn.Parameter]] = {}
        for parameter in parameters:
            if parameter in group_of:
                groups.setdefault(group_of[parameter], []).append(parameter)
        _step_with(optimizer, plain, [{**options[g], "params": groups[g]} for g in sorted(groups)])

    return step


def step_nothing(optimizer: Any, inner_step: Any) -> None:
    """Counts a step where learning-rate schedulers count them."""
    groups = [{**group, "params": []} for group in optimizer.param_groups]
    real, optimizer.param_groups = optimizer.param_groups, groups
    try:
        inner_step()
    finally:
        optimizer.param_groups = real


def _step_with(optimizer: Any, plain: Any, groups: list[dict[str, Any]]) -> None:
    real, optimizer.param_groups = optimizer.param_groups, groups
    try:
        without_hooks(plain.step)(optimizer)  # there were no hooks when step() was called
    finally:
        optimizer.param_groups = real


def _copied(group: dict[str, Any]) -> dict[str, Any]:
    # A learning rate may be a tensor, which schedulers change in place. So may each of the betas.
    return {key: _own(value) for key, value in group.items() if key != "params"}


def _own(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.clone()
    if type(value) in (list, tuple):
        return type(value)(_own(one) for one in value)
    return {key: _own(one) for key, one in value.items()} if type(value) is dict else value


keep_module_out_of_compiler(__name__)

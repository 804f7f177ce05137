"""Who else holds a tensor or its memory, and so would miss a value that comes later."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import torch

from .first_use import untracked
from .uncompiled import keep_module_out_of_compiler

_storage_use_count = getattr(torch._C, "_storage_Use_Count", None)  # torch >= 2.1


def _uses(tensor: torch.Tensor) -> int:
    """By tensors, in C++, and by variables: a storage is one object in Python, and counts there as one use."""
    storage = tensor.untyped_storage()
    assert _storage_use_count is not None
    return int(_storage_use_count(storage._cdata)) + sys.getrefcount(storage)


_SINGLE_USE = 0 if _storage_use_count is None else _uses(torch.ones(1, device="cpu"))


def _references() -> int:
    alone: list[None] = []
    return sys.getrefcount(alone)


_SINGLE_REFERENCE = _references()  # of an object in one local variable


def _references_to_gradient() -> int:
    parameter = torch.nn.Parameter(torch.ones(1, device="cpu"))
    parameter.grad = torch.ones(1, device="cpu")
    gradient = parameter.grad
    return sys.getrefcount(gradient)


# Of a .grad in one local variable. PyTorch 2.10 counts the one in C++, earlier ones do not.
_GRADIENT_REFERENCES = _references_to_gradient()


def sees_all_readers() -> bool:
    """Whether this torch can say who else reads a parameter's memory."""
    return _storage_use_count is not None


# ---- parameters


def are_read_elsewhere(parameters: Iterable[torch.Tensor]) -> bool:
    """Whether somebody would see an old value without a call: another tensor or process has a parameter's memory, or
    C++ code, such as a scripted module or a graph that is kept, has the parameter itself."""
    if _storage_use_count is None:
        return False
    with untracked():
        return any(_is_read_elsewhere(parameter) for parameter in parameters)


def _is_read_elsewhere(parameter: Any) -> bool:
    held = parameter._use_count() - 1
    if held and parameter.requires_grad:
        held -= _holds_accumulator(parameter)
    return held > 0 or _uses(parameter) > _SINGLE_USE or parameter.untyped_storage().is_shared()


def _holds_accumulator(parameter: Any) -> bool:
    """Whether a graph is kept that accumulates its gradient. A loss in a variable keeps one. It reads no value."""
    before = parameter._use_count()
    with torch.enable_grad():
        accumulator = parameter.view_as(parameter).grad_fn.next_functions[0][0]  # a new one if there is none
    return accumulator is not None and bool(parameter._use_count() == before)


# ---- gradients and states of optimizers


def is_gradient_held(parameter: torch.nn.Parameter, own: int) -> bool:
    """Whether somebody has ``.grad``, or its memory, besides ``own`` references of Gradbus. Within untracked()."""
    gradient = parameter.grad
    if gradient is None or _storage_use_count is None or gradient.layout is not torch.strided:
        return False
    # In C++: the object in Python and the parameter.
    held: int = gradient._use_count()  # type: ignore[attr-defined]
    return sys.getrefcount(gradient) > _GRADIENT_REFERENCES + own or held > 2 or _uses(gradient) > _SINGLE_USE


def is_state_held(state: Any) -> bool:
    """Whether somebody has a dictionary or a tensor of an optimizer's state, ``state`` itself apart."""
    for key in state:
        of_parameter = state[key]
        if sys.getrefcount(of_parameter) > _SINGLE_REFERENCE + 1:
            return True
        if isinstance(of_parameter, dict):
            for name in of_parameter:
                value = of_parameter[name]
                if isinstance(value, torch.Tensor) and _is_tensor_held(value):
                    return True
    return False


def _is_tensor_held(tensor: torch.Tensor) -> bool:
    # Held by the dictionary, by the caller's variable and by this one.
    if sys.getrefcount(tensor) > _SINGLE_REFERENCE + 2:
        return True
    return tensor.layout is torch.strided and _uses(tensor) > _SINGLE_USE


keep_module_out_of_compiler(__name__)

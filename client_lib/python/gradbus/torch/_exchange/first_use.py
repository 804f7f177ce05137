"""Calls a function just before a parameter, or its gradient, is used next.

A watched parameter gets another class, a subclass of its own that differs in one respect: torch passes every
operation on it to ``__torch_function__``. The first one that needs what is not there yet calls the function, and the
parameter has its own class again. So every way to use a parameter is covered: layers, tied weights, norms for
regularization, ``state_dict()``, ``copy.deepcopy()``.

What torch does in C++ alone does not come by: scripted modules, CUDA graphs, extensions that take tensors through
pybind11. A hook on all modules covers these where they are reached through a module. Elsewhere they get an error
(hidden.py).
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch

from .hidden import hide, show
from .uncompiled import keep_module_out_of_compiler

OnUse = Callable[[torch.nn.Parameter], None]

_Plain = type[torch.nn.Parameter]
_watched_class_of: dict[_Plain, _Plain] = {}
_plain_class_of: dict[_Plain, _Plain] = {}


@dataclass
class _Watch:
    parameter: Callable[[], torch.nn.Parameter | None]  # weak
    on_use: Callable[[], OnUse | None]  # weak
    values: bool  # its value is not there yet, besides its gradient
    real: torch.Tensor | None = None  # its memory, which hide() has taken away


_watches: dict[int, _Watch] = {}  # by id of the parameter


def _reference_to(parameter: torch.nn.Parameter) -> weakref.ref[torch.nn.Parameter]:
    key = id(parameter)

    def forget(reference: Any) -> None:
        known = _watches.get(key)
        if known is not None and known.parameter is reference:
            del _watches[key]  # and the memory that was taken away

    return weakref.ref(parameter, forget)


def _watch_of(parameter: torch.nn.Parameter) -> _Watch | None:
    """Not that of an earlier one with this id, which is gone with its watcher."""
    known = _watches.get(id(parameter))
    return known if known is not None and known.parameter() is parameter else None


def can_watch(parameter: torch.nn.Parameter) -> bool:
    """Whether its class has no ``__torch_function__`` of its own. DTensor only says that it is a Parameter."""
    its = _class_of(parameter)
    return torch.nn.Parameter in its.__mro__ and its.__torch_function__ is torch._C._disabled_torch_function_impl


@functools.cache
def _watch_transforms() -> None:
    """Those of torch.func wrap parameters in C++. From here on, all watched parameters are used before one begins."""
    for module in map(importlib.import_module, ("torch._functorch.eager_transforms", "torch._functorch.vmap")):
        for name, enter in list(vars(module).items()):
            if name.startswith("_") and name.endswith("_increment_nesting"):
                setattr(module, name, _after_all_uses(enter))


def _after_all_uses(enter: Callable[..., Any]) -> Callable[..., Any]:
    def begin(*arguments: Any) -> Any:
        if _watches:
            _use_all()
        return enter(*arguments)

    return begin


def watch(parameters: Iterable[torch.nn.Parameter], on_use: OnUse, values: bool) -> None:
    """Has ``on_use(parameter)``, a bound method that is held weakly, run before a gradient is used next.

    ``values``: also before a value is used. ``on_use`` calls unwatch(), or raises.
    """
    if values:
        _watch_transforms()
    on_use_weakly = weakref.WeakMethod(on_use)
    for parameter in parameters:
        before = _watch_of(parameter)
        one = _Watch(_reference_to(parameter), on_use_weakly, values, before and before.real)
        _watches[id(parameter)] = one
        if type(parameter) not in _plain_class_of:
            parameter.__class__ = _watched_class_of.get(type(parameter)) or _new_class(type(parameter))
        if values and one.real is None:
            with untracked():
                one.real = hide(parameter)


def _new_class(plain: _Plain) -> _Plain:
    watched = type(plain.__name__, (plain,), _methods(plain))
    _watched_class_of[plain] = watched
    _plain_class_of[watched] = plain
    return watched


def reveal(parameter: torch.nn.Parameter) -> None:
    """Its value is about to be made, within untracked(). It is watched as before."""
    known = _watch_of(parameter)
    if known is not None:
        show(parameter, known.real)
        known.real = None


def unwatch(parameter: torch.nn.Parameter) -> None:
    """It may be used."""
    with untracked():
        reveal(parameter)
    _watches.pop(id(parameter), None)
    parameter.__class__ = _class_of(parameter)


def untracked() -> Any:
    """Within this context, this thread has the parameters as they are: nothing is a use. Other threads still wait."""
    return _Untracked()


_Untracked = getattr(torch._C, "DisableTorchFunctionSubclass", None) or torch._C.DisableTorchFunction


def _class_of(parameter: torch.nn.Parameter) -> _Plain:
    its = type(parameter)
    return _plain_class_of.get(its, its)


# ---- what a watched parameter does

# What these say is known without the value.
_FACTS = frozenset(
    getattr(torch.Tensor, name)
    for name in (
        "shape", "dtype", "device", "layout", "ndim", "requires_grad", "is_leaf", "grad_fn", "is_cuda", "is_cpu",
        "is_sparse", "is_quantized", "is_meta", "is_mps", "is_nested", "size", "dim", "numel", "nelement", "stride",
        "is_contiguous", "is_complex", "is_floating_point", "element_size", "register_hook",
        "register_post_accumulate_grad_hook",
    )
    if hasattr(torch.Tensor, name)
)  # fmt: skip


def _methods(plain: _Plain) -> dict[str, Any]:
    return {
        "__module__": plain.__module__,
        "__qualname__": plain.__qualname__,
        "__torch_function__": classmethod(_torch_function),
        "as_subclass": _as_subclass,
        "__deepcopy__": _deepcopy,
        "__reduce_ex__": _reduce_ex,
    }


def _torch_function(
    _: type, function: Any, types: Any, arguments: tuple[Any, ...] = (), options: Any = None
) -> Any:
    options = options or {}
    # The getter of an attribute is a method of the attribute's descriptor.
    accessor = getattr(function, "__name__", "")
    what = function.__self__ if accessor in ("__get__", "__set__", "__delete__") else function
    of_value = what not in _FACTS or accessor == "__set__"
    of_gradient = what is torch.Tensor.grad or _freezes(what, accessor)
    left = []
    for parameter in _watched_among((arguments, options)):
        if not _use(parameter, of_gradient, of_value):
            left.append(parameter)
    if not left:
        result = function(*arguments, **options)
        if what is torch.Tensor.detach and sys._getframe(1).f_code is torch.nn.Parameter.__new__.__code__:
            result.__class__ = type(arguments[0])  # Parameter() has taken the watched one for a class of its own
        return result
    if all(its in _plain_class_of for its in types):
        with untracked():
            return function(*arguments, **options)
    return _call_on_plain(left, lambda: function(*arguments, **options))  # others want to know of the call


def _freezes(what: Any, accessor: str) -> bool:
    """A frozen parameter gets no gradient."""
    return what is torch.Tensor.requires_grad_ or (what is torch.Tensor.requires_grad and accessor == "__set__")


def _use(parameter: torch.nn.Parameter, of_gradient: bool, of_value: bool) -> bool:
    """Whether it needs no watch any more."""
    known = _watch_of(parameter)
    on_use = None if known is None else known.on_use()
    if known is None or on_use is None:
        unwatch(parameter)  # a copy, or its watcher is gone
        return True
    if of_gradient or (known.values and of_value):
        on_use(parameter)
        return True
    return False


def _call_on_plain(parameters: list[torch.nn.Parameter], call: Callable[[], Any]) -> Any:
    for parameter in parameters:
        parameter.__class__ = _class_of(parameter)
    try:
        return call()
    finally:
        for parameter in parameters:
            if id(parameter) in _watches:
                parameter.__class__ = _watched_class_of[type(parameter)]


def _as_subclass(self: torch.nn.Parameter, cls: Any) -> Any:
    _use(self, of_gradient=False, of_value=True)
    return torch.Tensor.as_subclass(self, cls)


def _deepcopy(self: torch.nn.Parameter, memo: dict[int, Any]) -> Any:
    return _as_plain(self, lambda: cast(Any, self).__deepcopy__(memo))


def _reduce_ex(self: torch.nn.Parameter, protocol: Any) -> Any:
    return _as_plain(self, lambda: cast(Any, self).__reduce_ex__(protocol))


def _as_plain(parameter: torch.nn.Parameter, call: Callable[[], Any]) -> Any:
    used = _use(parameter, of_gradient=False, of_value=True)
    return _call_on_plain([] if used else [parameter], call)


def _watched_among(things: Iterable[Any]) -> Iterator[torch.nn.Parameter]:
    for thing in things:
        if type(thing) in _plain_class_of:
            yield thing
        elif isinstance(thing, (list, tuple)):
            yield from _watched_among(thing)
        elif isinstance(thing, dict):
            yield from _watched_among(thing.values())


# ---- what does not come by


class ModuleHook:
    """While it is there, a module's own parameters are used before its forward pass begins."""

    def __init__(self) -> None:
        self._handle: Any = None

    def put(self) -> None:
        """Idempotent."""
        if self._handle is None:
            register = torch.nn.modules.module.register_module_forward_pre_hook
            self._handle = register(_before_forward)

    def remove(self) -> None:
        """Not within a forward pass. Idempotent."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None


def _before_forward(module: torch.nn.Module, _: Any) -> None:
    if not _watches:
        return
    # Of these nobody sees the forward passes of modules within: C++ or a recorded graph runs them.
    is_opaque = isinstance(module, torch.jit.ScriptModule) or "forward" in module.__dict__
    for parameter in module.parameters() if is_opaque else _own_parameters(module):
        if type(parameter) in _plain_class_of:
            _use(parameter, of_gradient=False, of_value=True)


def _own_parameters(module: torch.nn.Module) -> Iterator[torch.nn.Parameter]:
    """Those of lists and dictionaries in it, too: these have no forward pass of their own."""
    yield from module.parameters(recurse=False)
    for child in module.children():
        if getattr(type(child), "forward", None) is torch.nn.Module.forward:  # the class of a scripted one has none
            yield from _own_parameters(child)


def is_compiled() -> bool:
    """Whether torch.compile is in use: what it compiles reads parameters without a call."""
    utilities = sys.modules.get("torch._dynamo.utils")
    return utilities is not None and bool(utilities.counters["frames"])


def _use_all() -> None:
    for watched in list(_watches.values()):
        on_use = watched.on_use()
        owner = getattr(on_use, "__self__", None)
        if owner is not None:
            owner.finish()


os.register_at_fork(before=_use_all)  # a child cannot wait for other ranks


keep_module_out_of_compiler(__name__)

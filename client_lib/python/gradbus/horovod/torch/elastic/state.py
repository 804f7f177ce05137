"""TorchState: models and optimizers of PyTorch with the methods of Horovod's states."""

from __future__ import annotations

import copy
from typing import Any

from ....elastic import Saved
from ....torch import ElasticState
from ...common.elastic import State
from .handlers import (
    ModelStateHandler,
    OptimizerStateHandler,
    SamplerStateHandler,
    StateHandler,
    get_handler_registry,
    own_handler,
    set_handler_registry,
)

__all__ = [
    "ModelStateHandler",
    "OptimizerStateHandler",
    "SamplerStateHandler",
    "StateHandler",
    "TorchState",
    "get_handler_registry",
    "set_handler_registry",
]

# Entry of the commit that is no value of the user's, whose names do not begin so.
_HANDLED = "_handled"


class TorchState(State, ElasticState):
    """A model, an optimizer and named values that a job can restore: ``TorchState(model, optimizer, epoch=0)``.

    An optimizer must be one of hvd.DistributedOptimizer(). Further models, optimizers, samplers and values with a
    ``state_dict()`` are given by name. Values of a type with an own handler are left to it: set_handler_registry().
    """

    _handlers: dict[str, StateHandler] = {}  # of the values that Gradbus does not keep

    def __init__(self, model: Any = None, optimizer: Any = None, **kwargs: Any) -> None:
        values = {"model": model, "optimizer": optimizer, **kwargs}
        found = {name: own_handler(value) for name, value in values.items()}
        super().__init__(**values)
        self._handlers = {name: handler for name, handler in found.items() if handler is not None}
        self._names = tuple(name for name in values if name not in self._handlers)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._handlers:
            self._handlers[name].set_value(value)
        super().__setattr__(name, value)

    def _save(self) -> Saved:
        saved = super()._save()
        for handler in self._handlers.values():
            handler.save()
        # Two commits may be kept for a while, so what a handler has saved is kept with its commit.
        saved[_HANDLED] = {name: copy.copy(vars(handler)) for name, handler in self._handlers.items()}
        return saved

    def _load(self, saved: Saved, number: int) -> None:
        super()._load(saved, number)
        for name, handler in self._handlers.items():
            kept = {part: value for part, value in saved[_HANDLED][name].items() if part != "value"}
            vars(handler).update(kept)
            handler.restore()
            object.__setattr__(self, name, handler.value)

    def _share(self) -> None:
        super()._share()
        for name, handler in self._handlers.items():
            handler.sync()
            object.__setattr__(self, name, handler.value)

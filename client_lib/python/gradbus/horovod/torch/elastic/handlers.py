"""How TorchState keeps values of a type. Scripts may register handlers of their own, by type."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch

from ...._objects import broadcast_object
from .._parameters import broadcast_optimizer_state, broadcast_parameters
from .sampler import ElasticSampler


class StateHandler:
    """Base of handlers. ``save()`` must make a new copy, because an older one may still be needed."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def save(self) -> None:
        """Keeps the value for restore()."""
        raise NotImplementedError

    def restore(self) -> None:
        """Goes back to what save() has kept."""
        raise NotImplementedError

    def sync(self) -> None:
        """Gives all ranks the value of rank 0. All ranks call it."""
        raise NotImplementedError

    def set_value(self, value: Any) -> None:
        """The script has assigned another value to the state's attribute."""
        self.value = value
        self.save()


class _StateDictHandler(StateHandler):
    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self.save()

    def save(self) -> None:
        self._saved = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        self.value.load_state_dict(copy.deepcopy(self._saved))


class ModelStateHandler(_StateDictHandler):
    """Of a torch.nn.Module."""

    def sync(self) -> None:
        """As broadcast_parameters()."""
        broadcast_parameters(self.value.state_dict(), root_rank=0)


class OptimizerStateHandler(_StateDictHandler):
    """Of a torch.optim.Optimizer."""

    def sync(self) -> None:
        """As broadcast_optimizer_state()."""
        broadcast_optimizer_state(self.value, root_rank=0)


class SamplerStateHandler(_StateDictHandler):
    """Of an ElasticSampler."""

    def sync(self) -> None:
        """As broadcast_object() of its state."""
        self.value.load_state_dict(broadcast_object(self.value.state_dict()))


Registry = Sequence[tuple[type, type[StateHandler]]]

_OF_GRADBUS = (ModelStateHandler, OptimizerStateHandler, SamplerStateHandler)
_registry: Registry = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
]


def get_handler_registry() -> Registry:
    """Pairs of a type and its handler. The first pair whose type a value has counts."""
    return _registry


def set_handler_registry(registry: Registry) -> None:
    """Replaces the pairs, for states that are made from now on."""
    global _registry
    _registry = registry


def own_handler(value: Any) -> StateHandler | None:
    """One that a script has registered. None: TorchState itself keeps such a value."""
    for kind, handler in _registry:
        if isinstance(value, kind):
            return None if handler in _OF_GRADBUS else handler(value)
    return None

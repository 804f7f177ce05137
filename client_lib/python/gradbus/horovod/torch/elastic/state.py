"""TorchState: models and optimizers of PyTorch with the methods of Horovod's states."""

from __future__ import annotations

from typing import Any

from ....torch import ElasticState
from ...common.elastic import State


class TorchState(State, ElasticState):
    """A model, an optimizer and named values that a job can restore: ``TorchState(model, optimizer, epoch=0)``.

    An optimizer must be one of hvd.DistributedOptimizer(). Further models, optimizers, samplers and values with a
    ``state_dict()`` are given by name.
    """

    def __init__(self, model: Any = None, optimizer: Any = None, **kwargs: Any) -> None:
        super().__init__(model=model, optimizer=optimizer, **kwargs)

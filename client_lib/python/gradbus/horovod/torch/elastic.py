"""Elastic training with Horovod's names: ``hvd.elastic.run``, ``TorchState`` and ``ElasticSampler``.

The job survives the loss of an agent or a link, with the same processes. The number of ranks never changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from ..._errors import bad_argument
from ..._objects import broadcast_object
from ..._session import rank
from ...elastic import State, run
from ...torch import ElasticState
from ._sampler import ElasticSampler

__all__ = ["ElasticSampler", "ObjectState", "State", "TorchState", "run"]

Callback = Callable[[], object]


class _HorovodState(State):
    """What Horovod's states have and those of Gradbus have not."""

    def __init__(self, **values: Any) -> None:
        self._reset_callbacks: list[Callback] = []
        self._was_synchronized = False
        super().__init__(**values)

    def register_reset_callbacks(self, callbacks: Iterable[Callback]) -> None:
        """Functions to call when the job has joined again and the last commit is restored."""
        self._reset_callbacks.extend(callbacks)

    def check_host_updates(self) -> None:
        """Does nothing: the hosts of a job never change."""

    def save(self) -> NoReturn:
        """Raises InvalidError: a commit is made by all ranks together."""
        raise bad_argument("State.save: one rank cannot keep its values alone", "call commit() on every rank")

    def sync(self) -> None:
        """Restores the newest commit of all ranks, or gives them the values of rank 0. ``run`` calls it."""
        super().sync()
        if self._was_synchronized:
            for callback in self._reset_callbacks:
                callback()
        self._was_synchronized = True


class ObjectState(_HorovodState):
    """Named Python values that a job can restore: ``ObjectState(hvd.broadcast_object, hvd.rank, step=0)``.

    Raises InvalidError for functions other than these two.
    """

    def __init__(
        self,
        bcast_object: Callable[..., Any] = broadcast_object,
        get_rank: Callable[[], int] = rank,
        **kwargs: Any,
    ) -> None:
        if bcast_object is not broadcast_object or get_rank is not rank:
            raise bad_argument(
                "ObjectState: bcast_object and get_rank are not those of Gradbus",
                "pass hvd.broadcast_object and hvd.rank, or leave them out",
            )
        super().__init__(**kwargs)


class TorchState(_HorovodState, ElasticState):
    """A model, an optimizer and named values that a job can restore: ``TorchState(model, optimizer, epoch=0)``.

    An optimizer must be one of hvd.DistributedOptimizer(). Further models, optimizers, samplers and values with a
    ``state_dict()`` are given by name.
    """

    def __init__(self, model: Any = None, optimizer: Any = None, **kwargs: Any) -> None:
        super().__init__(model=model, optimizer=optimizer, **kwargs)

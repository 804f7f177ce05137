"""``hvd.elastic`` of Keras, for Keras 3 and Keras 2: KerasState and the callbacks that update and commit it.

The job survives the loss of an agent or a link, with the same processes. The number of ranks never changes.
"""

from __future__ import annotations

from typing import Any

from ...keras.callbacks import Callback
from .._elastic import run
from ._model_state import ModelState

__all__ = ["CommitStateCallback", "KerasState", "UpdateBatchStateCallback", "UpdateEpochStateCallback", "run"]


class KerasState(ModelState):
    """A model, its optimizer and named values that a job can restore: ``KerasState(model, epoch=0, batch=0)``."""

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        """``optimizer``: that of ``model.compile()`` if left out. The model must be built."""
        super().__init__(model, optimizer, **kwargs)


class CommitStateCallback(Callback):
    """Commits the state after every ``batches_per_commit`` batches, and at the end of each epoch."""

    def __init__(self, state: Any, batches_per_commit: int = 1) -> None:
        super().__init__()
        self.state = state
        self.batches_per_commit = batches_per_commit
        self.batches_remaining = batches_per_commit

    def on_train_begin(self, logs: Any = None) -> None:
        """All ranks count from here."""
        self.batches_remaining = self.batches_per_commit

    def on_batch_end(self, batch: int, logs: Any = None) -> None:
        """Counts, and commits."""
        self.batches_remaining -= 1
        if self.batches_remaining == 0:
            self.batches_remaining = self.batches_per_commit
            self.state.commit()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Commits. Callbacks that change the state come before this one."""
        self.state.commit()


class UpdateBatchStateCallback(Callback):
    """``state.batch`` is the number of the last batch, and 0 at the end of an epoch."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state

    def on_batch_end(self, batch: int, logs: Any = None) -> None:
        """Keras counts from 0 in each epoch."""
        self.state.batch = batch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """The next epoch has no batch yet."""
        self.state.batch = 0


class UpdateEpochStateCallback(Callback):
    """``state.epoch`` is the number of epochs that have ended, over all calls of ``fit()``.

    Pass ``epochs=total - state.epoch`` to fit(), as with Horovod, or ``initial_epoch=state.epoch, epochs=total``.
    """

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self.initial_epoch = state.epoch
        self._first: int | None = None  # by Keras's count

    def on_train_begin(self, logs: Any = None) -> None:
        """Each call of fit() goes on from the state."""
        self.initial_epoch = self.state.epoch
        self._first = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Remembers the first epoch."""
        self._first = epoch if self._first is None else self._first

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """This epoch has ended."""
        self.state.epoch = self.initial_epoch + epoch - (self._first or 0) + 1

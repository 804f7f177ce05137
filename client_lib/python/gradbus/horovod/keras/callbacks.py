"""Callbacks with Horovod's arguments, for Keras 3 on any backend and for Keras 2."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras

from ...keras import callbacks
from ...keras.callbacks import LearningRateWarmupCallback

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]


class BroadcastGlobalVariablesCallback(callbacks.BroadcastGlobalVariablesCallback):
    """All ranks begin with the root's variables, of the model and of its optimizer, except for local ones."""

    def __init__(self, root_rank: int, device: str = "", local_variables: Sequence[Any] | None = None) -> None:
        """``device`` changes nothing."""
        super().__init__(root_rank, device)
        if local_variables is None:
            local_variables = ()
        elif hasattr(local_variables, "assign"):  # a single variable
            local_variables = (local_variables,)
        self._local = {id(variable) for variable in local_variables}

    def register_local_var(self, var: Any) -> None:
        """This variable of the model keeps its own value on each rank."""
        self._local.add(id(var))

    def variables_to_send(self) -> list[Any]:
        """All but the local ones."""
        return [variable for variable in super().variables_to_send() if id(variable) not in self._local]


class MetricAverageCallback(callbacks.MetricAverageCallback):
    """The metrics of an epoch are their mean over all ranks. Put it before callbacks that use them."""

    def __init__(self, device: str = "") -> None:
        """``device`` changes nothing."""
        super().__init__()


class LearningRateScheduleCallback(callbacks.LearningRateScheduleCallback):
    """The learning rate is ``initial_lr * multiplier(epoch)``.

    A number is a decay, as in Horovod: ``initial_lr * multiplier ** (epoch - start_epoch)``.
    """

    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[float], float],
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        """Arguments: those of gradbus.keras."""
        decays = not callable(multiplier)
        chosen = (lambda epoch: multiplier ** (epoch - start_epoch)) if decays else multiplier
        super().__init__(initial_lr, chosen, start_epoch, end_epoch, staircase, momentum_correction, steps_per_epoch)


class BestModelCheckpoint(callbacks.Callback, keras.callbacks.ModelCheckpoint):  # type: ignore[misc,unused-ignore]
    """Saves the best model so far to ``filepath``, which a script may set before training."""

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        mode: str = "auto",
        save_freq: Any = "epoch",
        filepath: str = "best_model.keras",
        save_weights_only: bool = False,
    ) -> None:
        """As keras.callbacks.ModelCheckpoint. ``filepath``: Horovod leaves it open, and Keras 3 needs one."""
        keras.callbacks.ModelCheckpoint.__init__(
            self, filepath, monitor, verbose, True, save_weights_only, mode, save_freq)

"""Callbacks for data-parallel training with Keras 3 and Keras 2. They have Horovod's names and arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from .._errors import bad_argument
from .._gradients import average_metrics
from .._session import rank, size
from ._exchange import keras2_of, prepare
from ._optimizer import broadcast_variables, number_of

__all__ = [
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]


def variables_of(optimizer: Any) -> list[Any]:
    """Those of an optimizer of any Keras."""
    found = optimizer.variables
    return list(found() if callable(found) else found)


def velocities_of(optimizer: Any) -> list[Any]:
    """Those of SGD, of any Keras."""
    if hasattr(optimizer, "get_slot_names"):  # a legacy one of Keras 2
        slots = [variable for variable in optimizer.variables() if "/momentum" in variable.name]
        return slots if "momentum" in optimizer.get_slot_names() else []
    return list(getattr(optimizer, "momentums", ()))


class Callback(keras.callbacks.Callback):  # type: ignore[misc,unused-ignore]
    """A callback of Keras 3 with what Keras 2 asks for, too."""

    def _implements_train_batch_hooks(self) -> bool:
        return self._has("on_batch_begin", "on_batch_end", "on_train_batch_begin", "on_train_batch_end")

    def _implements_test_batch_hooks(self) -> bool:
        return self._has("on_test_batch_begin", "on_test_batch_end")

    def _implements_predict_batch_hooks(self) -> bool:
        return self._has("on_predict_batch_begin", "on_predict_batch_end")

    def _has(self, *names: str) -> bool:
        return any(not getattr(getattr(self, name), "_is_default", False) for name in names)


class BroadcastGlobalVariablesCallback(Callback):
    """All ranks begin with the root's variables, of the model and of its optimizer."""

    def __init__(self, root_rank: int = 0, device: str = "") -> None:
        """``device``: Horovod's; it changes nothing."""
        super().__init__()
        self.root_rank = root_rank
        self._sent = 0  # variables

    def on_train_begin(self, logs: Any = None) -> None:
        """Keras 3 has built the model, and Keras 2 has if it knows the shapes. The optimizer is built here."""
        if self._sent:
            return
        optimizer, keras2 = self.model.optimizer, keras2_of(self.model)
        if keras2 is not None:
            if not self.model.built:
                return
            prepare(optimizer, self.model.trainable_variables)
        elif not optimizer.built:
            optimizer.build(self.model.trainable_variables)
        self._send()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """The first batch builds models of Keras 2 whose shapes were not known: they are sent after it, as in Horovod.

        All ranks have made the same step then.
        """
        if batch == 0 and keras2_of(self.model) is not None and len(self.variables_to_send()) != self._sent:
            self._send()

    def _send(self) -> None:
        chosen = self.variables_to_send()
        broadcast_variables(chosen, self.root_rank)
        self._sent = len(chosen)
        restart = getattr(self.model.optimizer, "_restart_shards", None)
        if restart is not None:  # shards that hold parameters have other ones, from an earlier fit()
            restart()

    def variables_to_send(self) -> list[Any]:
        """Of the model and of its optimizer."""
        return [*self.model.variables, *variables_of(self.model.optimizer)]


class MetricAverageCallback(Callback):
    """The metrics of an epoch are their mean over all ranks. Put it before callbacks that use them."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """In one operation."""
        if logs:
            logs.update(average_metrics(logs, "keras/metrics"))


class LearningRateScheduleCallback(Callback):
    """The learning rate is ``initial_lr`` times ``multiplier``, a number or a function of the epoch."""

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
        """``staircase``: it changes at the beginning of epochs; else with each batch, and ``multiplier`` gets
        fractions of epochs. ``momentum_correction``: the velocities of SGD follow (Goyal et al. 2017, 2.2)."""
        super().__init__()
        if not isinstance(initial_lr, (int, float)) or initial_lr <= 0:
            raise bad_argument(f"initial_lr={initial_lr!r} is no positive number", "pass initial_lr=0.1")
        self.initial_lr = initial_lr
        self.multiplier = multiplier if callable(multiplier) else lambda epoch: multiplier
        self.start_epoch, self.end_epoch = start_epoch, end_epoch
        self.staircase = staircase
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self.current_epoch = 0

    def on_train_begin(self, logs: Any = None) -> None:
        """How many batches an epoch has."""
        if not self.staircase and not self.steps_per_epoch:
            self.steps_per_epoch = self.params.get("steps")
            if not self.steps_per_epoch:
                raise bad_argument("the number of batches in an epoch is not known", "pass steps_per_epoch=")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Remembers the epoch."""
        self.current_epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Sets the learning rate of this batch."""
        is_over = self.end_epoch is not None and self.current_epoch >= self.end_epoch
        if self.current_epoch < self.start_epoch or is_over or (self.staircase and batch != 0):
            return
        part = 0.0 if self.staircase else batch / float(self.steps_per_epoch or 1)
        self._set(self.initial_lr * self.multiplier(self.current_epoch + part))

    def _set(self, rate: float) -> None:
        optimizer = self.model.optimizer
        if hasattr(self.model, "jax_state_sync"):
            self.model.jax_state_sync()  # the variables are in the trainer while it runs
        before = float(number_of(optimizer.learning_rate))
        optimizer.learning_rate = rate
        stepping = getattr(optimizer, "inner_optimizer", optimizer)  # of loss scaling
        if self.momentum_correction and getattr(stepping, "momentum", 0) and before > 0:
            for velocity in velocities_of(stepping):
                velocity.assign(velocity * (rate / before))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Adds the learning rate to the metrics."""
        if logs is not None:
            logs["lr"] = float(number_of(self.model.optimizer.learning_rate))


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """The learning rate grows from ``initial_lr / size`` to ``initial_lr`` in the first epochs (Goyal et al. 2017)."""

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: int = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        """``initial_lr``: after the warm-up, already scaled by the number of ranks. ``verbose``: rank 0 says when."""

        def multiplier(epoch: float) -> float:
            steps = self.steps_per_epoch or 1
            return 1.0 / size() * ((epoch + 1.0 / steps) * (size() - 1) / warmup_epochs + 1)

        super().__init__(initial_lr, multiplier, 0, warmup_epochs, False, momentum_correction, steps_per_epoch)
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Says that the warm-up has ended."""
        super().on_epoch_end(epoch, logs)
        if self.end_epoch is not None and epoch == self.end_epoch - 1 and self.verbose and rank() == 0:
            print(f"\nEpoch {epoch + 1}: the learning rate has reached {self.initial_lr:g}")

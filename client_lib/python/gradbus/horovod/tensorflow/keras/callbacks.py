"""Callbacks of tf.keras: those of Keras, except for one more argument of BestModelCheckpoint."""

from __future__ import annotations

from typing import Any

from ...keras import callbacks
from ...keras.callbacks import (
    BroadcastGlobalVariablesCallback,
    LearningRateScheduleCallback,
    LearningRateWarmupCallback,
    MetricAverageCallback,
)

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]


class BestModelCheckpoint(callbacks.BestModelCheckpoint):
    """Saves the best model so far, or its weights."""

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: Any = "epoch",
        filepath: str = "",
    ) -> None:
        """``filepath``: best_model.keras if left out, or best_model.weights.h5 for weights."""
        chosen = filepath or ("best_model.weights.h5" if save_weights_only else "best_model.keras")
        super().__init__(monitor, verbose, mode, save_freq, chosen, save_weights_only)

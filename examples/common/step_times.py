"""How long training steps take, and how much of a step is waiting for the exchange.

The share is found by doing the same steps without any exchange, on every rank at the same time: what
a step takes longer than that is communication that computing did not hide, and waiting for others.
"""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from common import devices

WARM_UP_STEPS = 5  # the first ones allocate; at most half of all steps are left out
ALONE_STEPS_MAX = 40


class StepTimes:
    """Wall-clock seconds of every step of this rank."""

    def __init__(self) -> None:
        self._seconds: list[float] = []

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Times the block."""
        devices.finish()
        began = time.perf_counter()
        yield
        devices.finish()
        self._seconds.append(time.perf_counter() - began)

    @property
    def milliseconds(self) -> np.ndarray:
        """Of the steps after the warm-up, in order."""
        skipped = min(WARM_UP_STEPS, len(self._seconds) // 2)
        return np.array(self._seconds[skipped:]) * 1e3


def time_alone(
    backend: Any,
    model: torch.nn.Module,
    make_optimizer: Callable[[torch.nn.Module], torch.optim.Optimizer],
    run_step: Callable[[torch.nn.Module, torch.optim.Optimizer, int], Any],
    steps: int,
) -> StepTimes:
    """Steps of a copy of the model that exchanges nothing; to be called before `distribute`."""
    model = copy.deepcopy(model)
    optimizer = make_optimizer(model)
    times = StepTimes()
    backend.barrier()
    for index in range(min(steps, ALONE_STEPS_MAX)):
        with times.step():
            run_step(model, optimizer, index)
    backend.barrier()
    return times


def report(backend: Any, model: torch.nn.Module, together: StepTimes, alone: StepTimes) -> dict[str, Any]:
    """What --time adds to a program's JSON line: this rank's times, in ms."""
    median, p90 = np.quantile(together.milliseconds, (0.5, 0.9))
    alone_median = np.median(alone.milliseconds)
    return {
        "backend": backend.name,
        "torch": torch.__version__,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "steps_timed": len(together.milliseconds),
        "step_ms_median": round(float(median), 3),
        "step_ms_p90": round(float(p90), 3),
        "step_ms_alone": round(float(alone_median), 3),
        "communication_share": round(max(0.0, 1.0 - float(alone_median / median)), 4),
    }

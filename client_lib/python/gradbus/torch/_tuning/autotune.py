"""Finds the schedule and the bucket size with the shortest steps, by trying them while the job trains.

Every candidate gets a turn of some steps. Ranks compare the slowest rank's median, so all come to the same end. Then
the best one stays. As Horovod's autotuning: GRADBUS_AUTOTUNE=1 or HOROVOD_AUTOTUNE=1; the lowest rank writes a line
for each turn to the file GRADBUS_AUTOTUNE_LOG or HOROVOD_AUTOTUNE_LOG.
"""

from __future__ import annotations

import os
import pathlib
import statistics
import time
import warnings
from typing import Any

import torch

from ..._differentiable import allreduce
from ..._errors import bad_argument
from ..._ops import Max
from ..._process_sets import ProcessSet, session_of
from .._buckets.retire import retire_names
from .._schedules import MiB

WARM_STEPS = 3  # of a turn: they fill caches, and the first one makes buckets
STEPS = 10  # of a turn, which count

Candidate = tuple[str, int]  # schedule, bytes of a bucket

# Few and far between: neighbours differ by less than steps do. The first one is what `auto` is anyway.
CANDIDATES: tuple[Candidate, ...] = (
    ("auto", 2 * MiB),
    ("bytescheduler", 1 * MiB),
    ("bytescheduler", 4 * MiB),
    ("bytescheduler", 8 * MiB),
    ("dear", 2 * MiB),
    ("ddp", 8 * MiB),
    ("ddp", 25 * MiB),
    ("fusion", 128 * MiB),
)
HEADER = "schedule,bucket_bytes,step_ms"


def _variable(name: str) -> str:
    return os.environ.get(f"GRADBUS_{name}", os.environ.get(f"HOROVOD_{name}", "")).strip()


def wants_tuning() -> bool:
    """As the environment says. InvalidError for a value that is neither 0 nor 1."""
    text = _variable("AUTOTUNE")
    if text not in ("", "0", "1"):
        raise bad_argument(f"GRADBUS_AUTOTUNE is '{text[:40]}'", "set it to 1, or to 0")
    return text == "1"


class Tuner:
    """Of one optimizer, whose gradients are all exchanged in mode sync."""

    def __init__(self, process_set: ProcessSet, name: str) -> None:
        self._process_set = process_set
        self._name = name  # of its operation
        self._turn = 0
        self._last = 0.0  # when the last step ended
        self._seconds: list[float] = []
        self.found: list[tuple[Candidate, float]] = []  # seconds of a step, by turn

    @property
    def is_done(self) -> bool:
        """The best one stays."""
        return self._turn > len(CANDIDATES)

    def stepped(self, optimizer: Any) -> None:
        """After each step, on every rank."""
        now = time.monotonic()
        if self._turn == 0:
            self._begin(optimizer)
            return
        self._seconds.append(now - self._last)
        self._last = now
        if len(self._seconds) == WARM_STEPS + STEPS:
            self._end(optimizer)

    def _begin(self, optimizer: Any) -> None:
        self._turn += 1
        schedule, bucket_bytes = self._best() if self.is_done else CANDIDATES[self._turn - 1]
        optimizer.change_schedule(schedule, bucket_bytes)
        self._seconds = []
        self._last = time.monotonic()

    def _end(self, optimizer: Any) -> None:
        ours = statistics.median(self._seconds[WARM_STEPS:])
        slowest = torch.tensor([ours], dtype=torch.float64)
        slowest = allreduce(slowest, self._name, Max, process_set=self._process_set)
        self.found.append((CANDIDATES[self._turn - 1], float(slowest[0])))
        self._begin(optimizer)
        if self.is_done:
            retire_names([self._name], self._process_set)
            self._write_log()

    def _write_log(self) -> None:
        path = _variable("AUTOTUNE_LOG")
        rank = session_of(self._process_set, "autotune").rank
        if not path or rank != 0:
            return
        lines = [HEADER, *(f"{name},{size},{seconds * 1e3:.3f}" for (name, size), seconds in self.found)]
        name, size = self._best()
        try:
            pathlib.Path(path).write_text("\n".join([*lines, f"# the best: {name}, {size} bytes"]) + "\n")
        except OSError as error:  # the training goes on
            warnings.warn(f"gradbus: the log of autotuning is not written: {error}", stacklevel=2)

    def _best(self) -> Candidate:
        return min(self.found, key=lambda one: one[1])[0]


def tuner_of(process_set: ProcessSet, number: int) -> Tuner | None:
    """One if the environment asks for it and there is something to tune: other ranks."""
    session = session_of(process_set, "DistributedOptimizer")
    return Tuner(process_set, f"autotune{number or ''}") if wants_tuning() and session.size > 1 else None

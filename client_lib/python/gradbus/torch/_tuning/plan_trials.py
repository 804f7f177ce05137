"""Steps under one plan after another. The one whose slowest rank is fastest stays; the first one is what runs now."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

WARM_STEPS = 3  # of a turn: they fill caches
STEPS = 8  # of a turn, which count
KEEP_MIN = 0.01  # of a step: what another plan must save

Plan = Any  # a StepPlan (planning.py); None: the buckets of the schedule's own


class Trials:
    """Of one optimizer. All ranks call stepped() after the same steps, and come to the same end."""

    def __init__(
        self, plans: Sequence[Plan], apply: Callable[[Any, Plan], None], slowest: Callable[[float], float]
    ) -> None:
        """``apply`` makes an optimizer use a plan. ``slowest``: the largest value of all ranks."""
        self._plans = plans
        self._apply = apply
        self._slowest = slowest
        self._seconds: list[float] = []
        self._last = time.monotonic()
        self.found: list[float] = []  # seconds of a step, by plan

    @property
    def is_done(self) -> bool:
        """The fastest one stays."""
        return len(self.found) == len(self._plans)

    def stepped(self, optimizer: Any) -> None:
        """After each step."""
        now = time.monotonic()
        self._seconds.append(now - self._last)
        self._last = now
        if len(self._seconds) < WARM_STEPS + STEPS:
            return
        self.found.append(self._slowest(statistics.median(self._seconds[WARM_STEPS:])))
        number = self.best if self.is_done else len(self.found)
        if number != len(self.found) - 1:
            self._apply(optimizer, self._plans[number])
        self._seconds, self._last = [], time.monotonic()

    @property
    def best(self) -> int:
        """Its number: the first plan, unless another one is clearly faster."""
        fastest = min(range(len(self.found)), key=lambda number: self.found[number])
        return fastest if self.found[fastest] < self.found[0] * (1 - KEEP_MIN) else 0

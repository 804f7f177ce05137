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
        self,
        plans: Sequence[Plan],
        apply: Callable[[Any, Plan], None],
        slowest: Callable[[float], float],
        keep_min: float = KEEP_MIN,
        confirms: bool = False,
    ) -> None:
        """``apply`` makes an optimizer use a plan. ``slowest``: the largest value of all ranks.

        ``confirms``: when another plan seems to be faster, the first one has a second turn, and its better turn
        counts. So a machine that was slow for a while does not decide.
        """
        self._plans = plans
        self._apply = apply
        self._slowest = slowest
        self._keep_min = keep_min
        self._confirms = confirms
        self._turns = list(range(len(plans)))
        self._seconds: list[float] = []
        self._last = time.monotonic()
        self.found: list[float] = []  # seconds of a step, by plan; then those of the first one's second turn

    @property
    def is_done(self) -> bool:
        """The fastest one stays."""
        return len(self.found) == len(self._turns)

    def stepped(self, optimizer: Any) -> None:
        """After each step."""
        now = time.monotonic()
        self._seconds.append(now - self._last)
        self._last = now
        if len(self._seconds) < WARM_STEPS + STEPS:
            return
        self.found.append(self._slowest(statistics.median(self._seconds[WARM_STEPS:])))
        if self._confirms and len(self.found) == len(self._plans) and self.best != 0:
            self._turns.append(0)
        number = self.best if self.is_done else self._turns[len(self.found)]
        if number != self._turns[len(self.found) - 1]:
            self._apply(optimizer, self._plans[number])
        self.restart_turn()

    def restart_turn(self) -> None:
        """Forgets the steps of this turn."""
        self._seconds, self._last = [], time.monotonic()

    @property
    def first_seconds(self) -> float:
        """Of a step under the first plan."""
        return min([self.found[0], *self.found[len(self._plans) :]])

    @property
    def best(self) -> int:
        """Its number: the first plan, unless another one is clearly faster."""
        fastest = min(range(len(self._plans)), key=lambda number: self.found[number])
        return fastest if self.found[fastest] < self.first_seconds * (1 - self._keep_min) else 0

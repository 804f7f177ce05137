"""What a step of this rank computes, parameter by parameter: forward times, and when each gradient comes.

Times are of a clock that stands still while the rank waits for others, so communication is not in them. Hooks are there
for a few steps only.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .._buckets.parameter_info import NamedParameter

Row = tuple[list[float], list[float], float]  # forward and backward of each parameter, and the rest; microseconds


class StepTimes:
    """Of one optimizer. All calls come from the threads that run forward, backward and step, one at a time."""

    def __init__(self, named: Sequence[NamedParameter], waited_ns: Callable[[], int]) -> None:
        self._numbers = {name: number for number, (name, _) in enumerate(named)}
        self._of = {parameter: number for number, (_, parameter) in enumerate(named)}
        self._waited_ns = waited_ns
        self._starts: dict[int, float] = {}  # of forward, by the first parameter of a module
        self._arrivals: dict[int, float] = {}
        self._forward_end = 0.0
        self._step_end = 0.0
        self._rows: list[Row] = []
        self.seconds: list[float] = []  # of whole steps, waits included
        self._wall = 0.0
        self.forward_order: list[int] = []  # of the last step
        self.arrival: list[int] = []
        register = torch.nn.modules.module
        self._handles: list[Any] = [
            register.register_module_forward_pre_hook(self._before),
            register.register_module_forward_hook(self._after),
        ]

    def close(self) -> None:
        """Removes the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _now_us(self) -> float:
        return (time.monotonic_ns() - self._waited_ns()) / 1e3

    def _own(self, module: torch.nn.Module) -> list[int]:
        own = module._parameters.values()
        return [self._of[p] for p in own if p is not None and p in self._of]

    def _before(self, module: torch.nn.Module, _: Any) -> None:
        for number in self._own(module)[:1]:
            if not self._arrivals:
                self._starts.setdefault(number, self._now_us())
                self.forward_order += [n for n in self._own(module) if n not in self.forward_order]

    def _after(self, module: torch.nn.Module, _: Any, __: Any) -> None:
        if not self._arrivals and self._own(module):
            self._forward_end = self._now_us()

    def gradient(self, name: str) -> None:
        """Backward has finished this parameter."""
        if name in self._numbers:
            self._arrivals.pop(self._numbers[name], None)  # of an earlier pass
            self._arrivals[self._numbers[name]] = self._now_us()

    def stepped(self) -> None:
        """A step has ended."""
        now, wall = self._now_us(), time.monotonic()
        if self._step_end and self._arrivals:
            self._rows.append(self._row(now - self._step_end))
            self.seconds.append(wall - self._wall)
            self.arrival = list(self._arrivals)
        self._step_end, self._wall = now, wall
        self._starts, self._arrivals, self._forward_end = {}, {}, 0.0
        if len(self._rows) < self.wanted:
            self.forward_order = []

    wanted = 5

    @property
    def is_complete(self) -> bool:
        """Enough steps were measured."""
        return len(self._rows) >= self.wanted

    def _row(self, total: float) -> Row:
        forward, backward = [0.0] * len(self._numbers), [0.0] * len(self._numbers)
        starts = sorted(self._starts.items(), key=lambda one: one[1])
        ends = [start for _, start in starts[1:]] + [self._forward_end]
        for (number, start), end in zip(starts, ends):
            forward[number] = max(0.0, end - start)
        before = self._forward_end or next(iter(self._arrivals.values()))
        for number, at in self._arrivals.items():
            backward[number] = max(0.0, at - before)
            before = max(before, at)
        return forward, backward, max(0.0, total - sum(forward) - sum(backward))

    def medians(self) -> Row:
        """Of the measured steps."""
        forward = [statistics.median(column) for column in zip(*(row[0] for row in self._rows))]
        backward = [statistics.median(column) for column in zip(*(row[1] for row in self._rows))]
        return forward, backward, statistics.median(row[2] for row in self._rows)

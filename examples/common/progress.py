"""A progress bar on stderr: redrawn in place on a terminal, one line per round elsewhere."""

from __future__ import annotations

import sys
import time

WIDTH = 24
REDRAW_SECONDS = 0.1


class Progress:
    """Shown by rank 0 only (``show``); counts units (samples, tokens) for the rate.

    A training has `rounds` rounds (epochs, or just some steps) of `steps_per_round` steps.
    """

    def __init__(
        self, rounds: int, steps_per_round: int, show: bool, title: str = "epoch", unit: str = "samples"
    ) -> None:
        self._rounds = rounds
        self._steps = steps_per_round
        self._show = show
        self._title = title
        self._unit = unit
        self._terminal = sys.stderr.isatty()
        self._began = time.perf_counter()
        self._drawn = 0.0
        self._units = 0

    @property
    def seconds(self) -> float:
        """Since the training began."""
        return time.perf_counter() - self._began

    @property
    def units_per_s(self) -> float:
        """Over all ranks, since the training began."""
        return self._units / max(self.seconds, 1e-9)

    def step(self, number: int, step: int, units: int, loss: float) -> None:
        """A batch of `units` (all ranks together) of round `number` is done."""
        self._units += units
        if self._show and self._terminal and self.seconds - self._drawn >= REDRAW_SECONDS:
            self._drawn = self.seconds
            self._draw(number, step + 1, f"loss {loss:.4f}", end="")

    def round(self, number: int, values: str) -> None:
        """A round is done; `values` says how it went."""
        if self._show:
            self._draw(number, self._steps, values, end="\n")

    def _draw(self, number: int, step: int, values: str, end: str) -> None:
        filled = WIDTH * step // self._steps
        bar = "#" * filled + "." * (WIDTH - filled)
        head = "\r\x1b[K" if self._terminal else ""
        rate = f"{self.units_per_s:8.0f} {self._unit}/s"
        text = f"{self._title} {number + 1:2d}/{self._rounds} [{bar}] {rate}  {values}"
        print(head + text, end=end, file=sys.stderr, flush=True)

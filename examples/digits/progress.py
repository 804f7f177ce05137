"""A progress bar on stderr: redrawn in place on a terminal, one line per epoch elsewhere."""

from __future__ import annotations

import sys
import time

WIDTH = 24
REDRAW_SECONDS = 0.1


class Progress:
    """Shown by rank 0 only (``show``); counts samples for the rate."""

    def __init__(self, epochs: int, steps_per_epoch: int, show: bool) -> None:
        self._epochs = epochs
        self._steps = steps_per_epoch
        self._show = show
        self._terminal = sys.stderr.isatty()
        self._began = time.perf_counter()
        self._drawn = 0.0
        self._samples = 0

    @property
    def seconds(self) -> float:
        """Since the training began."""
        return time.perf_counter() - self._began

    @property
    def samples_per_s(self) -> float:
        """Over all ranks, since the training began."""
        return self._samples / max(self.seconds, 1e-9)

    def step(self, epoch: int, step: int, samples: int, loss: float) -> None:
        """A batch of `samples` (all ranks together) is done."""
        self._samples += samples
        if self._show and self._terminal and self.seconds - self._drawn >= REDRAW_SECONDS:
            self._drawn = self.seconds
            self._draw(epoch, step + 1, f"loss {loss:.4f}", end="")

    def epoch(self, epoch: int, loss: float, accuracy: float) -> None:
        """An epoch is done, with the mean loss and the accuracy on the test images."""
        if self._show:
            self._draw(
                epoch, self._steps, f"loss {loss:.4f}  test accuracy {accuracy:.4f}", end="\n"
            )

    def _draw(self, epoch: int, step: int, values: str, end: str) -> None:
        filled = WIDTH * step // self._steps
        bar = "#" * filled + "." * (WIDTH - filled)
        head = "\r\x1b[K" if self._terminal else ""
        text = f"epoch {epoch + 1:2d}/{self._epochs} [{bar}] {self.samples_per_s:8.0f} samples/s  {values}"
        print(head + text, end=end, file=sys.stderr, flush=True)

"""Steps of a set length, some longer: what a training on many and unequal machines is like, on one.

With --pace a step lasts at least so long; the time is slept, not computed, so four ranks need no four
cores. --slow makes the last rank slower than the others, --stalls a share of every rank's steps.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Iterator
from typing import Any

import numpy as np


def add_options(parser: argparse.ArgumentParser) -> None:
    """--pace, --slow, --stalls."""
    parser.add_argument("--pace", type=float, default=0.0, metavar="MS",
                        help="a step lasts at least this long; reports every rank's steps a second")  # fmt: skip
    parser.add_argument("--slow", type=float, default=1.0, metavar="FACTOR", help="the last rank's steps last longer")
    parser.add_argument("--stalls", type=_share_and_factor, default=(0.0, 1.0), metavar="SHARE:FACTOR",
                        help="this share of every rank's steps lasts longer, at random")  # fmt: skip


def _share_and_factor(text: str) -> tuple[float, float]:
    share, factor = (float(word) for word in text.split(":"))
    if not (0 <= share <= 1 <= factor):
        raise argparse.ArgumentTypeError(f"{text}: a share from 0 to 1 and a factor of at least 1")
    return share, factor


class Pace:
    """One rank's; keeps how long its steps took."""

    def __init__(self, arguments: argparse.Namespace, rank: int, size: int) -> None:
        self._seconds = arguments.pace / 1e3 * (arguments.slow if rank == size - 1 else 1.0)
        self._share, self._factor = arguments.stalls
        self._random = np.random.default_rng([arguments.seed, rank])
        self._steps = 0
        self._spent = 0.0
        self._computed = 0.0  # what the last step took by itself

    @contextlib.contextmanager
    def computing(self) -> Iterator[None]:
        """The part of a step that this machine alone does lasts as long as it should.

        The time is slept first, so that gradients come where they would: at the end of what takes long.
        """
        stalls = self._random.random() < self._share
        wanted = self._seconds * (self._factor if stalls else 1.0)
        time.sleep(max(0.0, wanted - self._computed))
        began = time.perf_counter()
        yield
        self._computed = time.perf_counter() - began

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """A whole step, waiting for others included."""
        began = time.perf_counter()
        yield
        self._spent += time.perf_counter() - began
        self._steps += 1

    def report(self, backend: Any) -> dict[str, Any]:
        """What it adds to a program's JSON line; nothing without --pace."""
        if not self._seconds:
            return {}
        rates = backend.gather(round(self._steps / self._spent, 3))
        return {"steps_per_s_of_ranks": rates, "steps_per_s": round(sum(rates), 3)}

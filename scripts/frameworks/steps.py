"""What the programs of measurements in this folder share: the model's sizes, the data, and the times of steps."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable

import numpy as np

WIDTHS = (1024, 2048, 1024, 100)  # 4.3 million parameters
LEARNING_RATE = 0.01
WARM_UP = 5


def parse_arguments(peer: str) -> argparse.Namespace:
    """--backend, --steps, --batch."""
    parser = argparse.ArgumentParser(description=f"Steps of a perceptron with Gradbus or with {peer}.")
    parser.add_argument("--backend", choices=("gradbus", peer), default="gradbus")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=64, help="of each rank")
    return parser.parse_args()


def place() -> tuple[int, int]:
    """Rank and size, from `gradbus run`."""
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def first_parameters() -> dict[str, np.ndarray]:
    """The same on all ranks."""
    random = np.random.default_rng(1)
    named = {}
    for number, (fan_in, fan_out) in enumerate(zip(WIDTHS, WIDTHS[1:])):
        named[f"w{number}"] = (random.standard_normal((fan_in, fan_out)) / np.sqrt(fan_in)).astype(np.float32)
        named[f"b{number}"] = np.zeros(fan_out, np.float32)
    return named


def batch_of(rank: int, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """One batch of a rank for all steps."""
    random = np.random.default_rng(rank + 2)
    images = random.standard_normal((batch, WIDTHS[0])).astype(np.float32)
    return images, random.integers(0, WIDTHS[-1], batch).astype(np.int32)


def median_ms(run: Callable[[], None], steps: int) -> float:
    """Of the steps after some to warm up."""
    times = []
    for _ in range(steps + WARM_UP):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return float(np.median(times[WARM_UP:]) * 1e3)


def report(backend: str, rank: int, together_ms: float, alone_ms: float, total: float) -> None:
    """Rank 0 prints one JSON object; ``total``: the sum of the last parameters, to compare backends."""
    if rank == 0:
        print(json.dumps({
            "backend": backend, "step_ms_median": round(together_ms, 3), "step_ms_alone": round(alone_ms, 3),
            "communication_share": round(max(0.0, 1 - alone_ms / together_ms), 4), "parameter_sum": total,
        }), flush=True)  # fmt: skip

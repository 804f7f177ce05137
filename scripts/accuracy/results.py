"""What trainings ended with: kept in a file as they come, so that an interrupted run goes on where it stopped."""

from __future__ import annotations

import json
import math
import pathlib
import statistics
from typing import Any, NamedTuple

from accuracy.rows import DENSE, RANKS, Row, Task
from accuracy.training import Training

KEPT = ("sent_bytes", "gradient_bytes", "compressible_bytes", "steps", "seconds", "param_hash")


class Results:
    """JSON lines in a file: one of each training."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self._found: dict[str, dict[str, Any]] = {one["command"]: one for one in map(json.loads, lines)}

    def add(self, training: Training, result: dict[str, Any]) -> None:
        """Keeps a training's figures."""
        task, row, seed = training
        kept = {"task": task.name, "row": row.name, "seed": seed, "command": training.command(),
                task.metric: result[task.metric], **{name: result[name] for name in KEPT}}  # fmt: skip
        self._found[kept["command"]] = kept
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text("".join(json.dumps(one) + "\n" for one in self._found.values()))

    def of(self, training: Training) -> dict[str, Any] | None:
        """The figures of a training with exactly these options; None when it was not done."""
        return self._found.get(training.command())


class Summary(NamedTuple):
    """A row of a task over its seeds."""

    row: Row
    seeds: int
    mean: float  # of the metric
    spread: float  # its standard deviation over the seeds
    worse: float  # than dense, seeds compared one by one: in points or in percent, below 0 is better
    worse_error: float  # standard error of that
    bytes_per_step: float  # that a rank's agent sent, from its counters
    fewer: float  # the least that a dense all-reduce can send / these
    compressible: float  # share of the gradient's bytes

    def met(self, task: Task) -> bool:
        """Whether it ended within the bound of dense."""
        return self.worse <= task.bound


def worse_by(task: Task, value: float, dense: float) -> float:
    """How much worse than dense: in points of a share, in percent of anything else."""
    sign = -1 if task.higher_is_better else 1
    return sign * (value - dense) * 100 / (1 if task.percent else dense)


def deviation(values: list[float]) -> float:
    """The standard deviation; 0 of one value."""
    return statistics.stdev(values) if len(values) > 1 else 0.0


def finite(value: float) -> float:
    """A loss that is no number is as bad as can be."""
    return value if math.isfinite(value) else math.inf


def summarize(results: Results, task: Task, row: Row, seeds: list[int]) -> Summary | None:
    """Of the seeds that this row and dense have both been trained with; None when there are none."""
    pairs = [(results.of(Training(task, row, seed)), results.of(Training(task, Row(DENSE), seed))) for seed in seeds]
    found = [(ours, dense) for ours, dense in pairs if ours and dense]
    if not found:
        return None
    values = [finite(ours[task.metric]) for ours, _ in found]
    worse = [worse_by(task, value, dense[task.metric]) for value, (_, dense) in zip(values, found)]
    sent = statistics.mean(ours["sent_bytes"] / ours["steps"] / RANKS for ours, _ in found)
    first = found[0][0]
    least = 2 * (RANKS - 1) / RANKS * first["gradient_bytes"]
    return Summary(row=row, seeds=len(found), mean=statistics.mean(values), spread=deviation(values),
                   worse=statistics.mean(worse), worse_error=deviation(worse) / math.sqrt(len(worse)),
                   bytes_per_step=sent, fewer=least / sent,
                   compressible=first["compressible_bytes"] / first["gradient_bytes"])  # fmt: skip

"""Finds the fastest schedule, size of buckets and size of chunks while the job trains (``gradbus run --autotune``).

All ranks try the same setting at the same steps, and take the time of the slowest rank. The coordinator proposes the
next setting by Bayesian optimization, so ranks cannot disagree. The best one stays, and the coordinator keeps it for
later jobs with the same model and the same number of ranks and nodes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
import statistics
import time
import warnings
from collections.abc import Sequence
from typing import Any

import torch

from ..._differentiable import allreduce
from ..._ops import Max
from ..._process_sets import ProcessSet, session_of
from .._buckets.retire import retire_names
from .._schedules import BUDGET_MAX, MiB
from .questions import ask_for_all
from .tuning_options import TuningOptions, tuning_options, wants_tuning

WARM_STEPS = 3  # of a setting, which do not count: they fill caches, and the first one makes buckets
BYTES_MIN = MiB // 4  # of a bucket: smaller ones cost more than they hide
BYTES_MAX = 64 * MiB
BYTES_STEP = MiB // 16

CHUNK_MIN = MiB // 16  # what agents send at a time: smaller ones cost more than they overlap
CHUNK_MAX = MiB  # a frame's
CHUNK_STEP = 4096

BUDGET_FACTOR = 8  # the search goes from an eighth of the budget that was asked for to eight times as much

# Schedule, bytes of a bucket, of a chunk (0: what the path wants), and in flight (0: no budget).
Setting = tuple[str, int, int, int]

IN_BACKWARD: Setting = ("ddp", 8 * MiB, 0, 0)  # what auto is where results are not left to the next forward pass
IN_FORWARD: Setting = ("bytescheduler", 2 * MiB, 0, 0)  # and what it is elsewhere
# What is tried after it, before the search begins: of each way to wait one.
FIRST: tuple[Setting, ...] = (("dear", 4 * MiB, 0, 0), ("ddp", 25 * MiB, 0, 0))
HEADER = "schedule,bucket_bytes,chunk_bytes,step_ms"
HEADER_WITH_BUDGET = "schedule,bucket_bytes,chunk_bytes,budget_bytes,step_ms"


@dataclasses.dataclass
class Space:
    """The settings that can be tried."""

    schedules: list[str]
    bytes_max: int  # of a bucket
    chunks: bool = False  # there are some between nodes
    budget: int = 0  # bytes in flight that the training asked for: only then they are searched

    def dimensions(self) -> list[dict[str, Any]]:
        """Of the search, as the coordinator takes them."""
        least = max(1, self.budget // BUDGET_FACTOR)
        most = min(self.budget * BUDGET_FACTOR, BUDGET_MAX)
        all_of_them: list[tuple[bool, dict[str, Any]]] = [
            (True, {"name": "bucket_bytes", "min": BYTES_MIN, "max": self.bytes_max, "log": True}),
            (self.chunks, {"name": "chunk_bytes", "min": CHUNK_MIN, "max": CHUNK_MAX, "log": True}),
            (self.budget > 0, {"name": "budget_bytes", "min": least, "max": most, "log": True}),
            (len(self.schedules) > 1, {"name": "schedule", "min": 0, "max": len(self.schedules)}),
        ]
        return [dimension for is_searched, dimension in all_of_them if is_searched]

    def point(self, setting: Setting, chunk_bytes: int) -> list[float]:
        """Of a setting whose buckets have chunks of so many bytes."""
        schedule, size, _, budget = setting
        chunk = [float(min(max(chunk_bytes, CHUNK_MIN), CHUNK_MAX))] if self.chunks else []
        flight = [float(budget)] if self.budget else []
        place = [self.schedules.index(schedule) + 0.5] if len(self.schedules) > 1 else []
        return [float(size), *chunk, *flight, *place]

    def setting(self, point: Sequence[float]) -> Setting:
        """Of a point that the coordinator proposes."""
        size, *rest = point
        chunk = rest.pop(0) if self.chunks else 0
        budget = round(rest.pop(0)) if self.budget else 0
        number = min(int(rest[0]), len(self.schedules) - 1) if rest else 0
        bucket_bytes = max(1, round(size / BYTES_STEP)) * BYTES_STEP
        return self.schedules[number], bucket_bytes, round(chunk / CHUNK_STEP) * CHUNK_STEP, budget


class Tuner:
    """Of one optimizer, whose gradients are all exchanged in mode sync."""

    def __init__(self, process_set: ProcessSet, name: str, options: TuningOptions) -> None:
        self._process_set = process_set
        self._name = name  # of its operations
        self._options = options
        self._space = Space(["ddp"], BYTES_MAX)
        self._key = ""  # of model and cluster
        self._left = options.warm_steps  # steps before the first setting
        self._now: Setting = IN_BACKWARD
        self._chunk_bytes = 0  # of the buckets that there are
        self._recalled: Setting | None = None
        self._last = 0.0  # when the last step ended
        self._seconds: list[float] = []
        self._lines: list[str] = [HEADER]
        self.found: list[tuple[Setting, float]] = []  # seconds of a step
        self._asked: list[float] = []  # the point of the setting that runs, if the coordinator has proposed it
        self._measured: list[dict[str, Any]] = []  # what the coordinator is told
        self.is_done = False  # the best one stays

    def stepped(self, optimizer: Any) -> None:
        """After each step, on every rank."""
        now = time.monotonic()
        if not self._key:
            self._left -= 1
            if self._left <= 0:
                optimizer._gradbus.attendance.require_all()
                self._prepare(optimizer)
            return
        self._seconds.append(now - self._last)
        self._last = now
        if len(self._seconds) == WARM_STEPS + self._options.steps:
            optimizer._gradbus.attendance.require_all()
            self._end(optimizer)

    def restart(self) -> None:
        """Forgets the steps of this setting."""
        self._left = self._options.warm_steps
        self._restart_setting()

    # ---- settings

    def _prepare(self, optimizer: Any) -> None:
        state = optimizer._gradbus
        sizes = [(name, tuple(p.shape), str(p.dtype)) for (name, p), _ in state.parameters]
        total = sum(p.numel() * p.element_size() for (_, p), _ in state.parameters)
        self._space.bytes_max = max(2 * BYTES_MIN, min(BYTES_MAX, total))
        first = IN_BACKWARD
        if state.may_wait_in_forward():
            self._space.schedules, first = ["ddp", "bytescheduler", "dear"], IN_FORWARD
        session = session_of(self._process_set, "autotune")
        self._space.chunks = session.local_size < session.size
        if self._space.chunks:
            self._space.budget = state.settings.schedule.budget_bytes
        if self._space.budget:
            self._lines = [HEADER_WITH_BUDGET]
        space = (self._space.schedules, self._space.budget)
        cluster = (session.size, session.local_size, state.settings.compression, *space)
        self._key = hashlib.sha256(repr((sizes, cluster)).encode()).hexdigest()
        self._recalled = self._recall()
        self._begin(optimizer, first)

    def _begin(self, optimizer: Any, setting: Setting) -> None:
        schedule, bucket_bytes, chunk_bytes, budget = setting
        bucket_bytes = max(BYTES_MIN, min(bucket_bytes, self._space.bytes_max))
        self._now = (schedule, bucket_bytes, chunk_bytes, budget or self._space.budget)
        if self._space.chunks:
            # The coordinator cuts tensors that are registered from here on so.
            question = {"want": "chunks", "bytes": chunk_bytes}
            answer = ask_for_all(self._process_set, f"{self._name}/chunks", lambda: question)
            self._chunk_bytes = answer.get("bytes", CHUNK_MAX)
        optimizer.change_schedule(schedule + (f":budget={self._now[3]}" if self._space.budget else ""), bucket_bytes)
        self._restart_setting()

    def _restart_setting(self) -> None:
        self._seconds, self._last = [], time.monotonic()

    def _end(self, optimizer: Any) -> None:
        slowest = torch.tensor([statistics.median(self._seconds[WARM_STEPS:])], dtype=torch.float64, device="cpu")
        slowest = allreduce(slowest, self._name, Max, process_set=self._process_set)
        self.found.append((self._now, float(slowest[0])))
        point = self._asked or self._space.point(self._now, self._chunk_bytes)
        self._measured.append({"point": point, "cost": self.found[-1][1] * 1e3})
        self._asked = []
        budget = f"{self._now[3]}," if self._space.budget else ""
        self._log(f"{self._now[0]},{self._now[1]},{self._chunk_bytes},{budget}{self.found[-1][1] * 1e3:.3f}")
        following = self._next()
        if following is not None:
            self._begin(optimizer, following)
            return
        best = min(self.found, key=lambda one: one[1])[0]
        self._begin(optimizer, best)
        self.is_done = True
        retire_names([self._name], self._process_set)
        flight = f", {best[3]} in flight" if self._space.budget else ""
        self._log(f"# the best: {best[0]}, {best[1]} bytes, in chunks of {self._chunk_bytes or best[1]} bytes{flight}")
        self._remember(best)

    def _next(self) -> Setting | None:
        """None: the search is over."""
        tried = len(self.found)
        if self._recalled is not None:
            if tried == 1:
                return self._recalled if self._recalled != self._now else None
            if tried == 2 and self.found[1][1] <= self.found[0][1]:
                return None  # an earlier job's setting is still good
        tried -= self._recalled is not None
        first = [setting for setting in FIRST if setting[0] in self._space.schedules]
        if tried <= len(first):
            return first[tried - 1]
        return self._ask() if tried < self._options.samples else None

    # ---- the coordinator

    def _ask(self) -> Setting | None:
        question = {"want": "point", "dimensions": self._space.dimensions(), "measured": self._measured}
        answer = ask_for_all(self._process_set, f"{self._name}/point", lambda: question)
        if "error" in answer:
            warnings.warn(f"gradbus: autotuning ends early: {answer['error']}", stacklevel=2)
            return None
        # It is told this very point: a rounded one would leave it in doubt about the place that it has asked for.
        self._asked = answer["point"]
        return self._space.setting(self._asked)

    def _recall(self) -> Setting | None:
        question = {"want": "recall", "key": self._key}
        answer = ask_for_all(self._process_set, f"{self._name}/recall", lambda: question)
        try:
            schedule, *numbers = json.loads(answer.get("value", ""))
            bucket_bytes, chunk_bytes, budget = numbers
        except (ValueError, TypeError):
            return None
        known = schedule in self._space.schedules and all(isinstance(number, int) for number in numbers)
        return (schedule, bucket_bytes, chunk_bytes, budget) if known else None

    def _remember(self, best: Setting) -> None:
        question = {"want": "remember", "key": self._key, "value": json.dumps(best)}
        ask_for_all(self._process_set, f"{self._name}/remember", lambda: question)

    # ---- the log

    def _log(self, line: str) -> None:
        """After each setting, so that a job which ends early has one, too."""
        self._lines.append(line)
        path = self._options.log
        if not path or session_of(self._process_set, "autotune").rank != 0:
            return
        try:
            pathlib.Path(path).write_text("\n".join(self._lines) + "\n")
        except OSError as error:  # the training goes on
            warnings.warn(f"gradbus: the log of autotuning is not written: {error}", stacklevel=2)


def tuner_of(process_set: ProcessSet, number: int) -> Tuner | None:
    """One if the environment asks for it and there is something to tune: other ranks."""
    session = session_of(process_set, "DistributedOptimizer")
    if not wants_tuning() or session.size == 1:
        return None
    return Tuner(process_set, f"autotune{number or ''}", tuning_options())

"""Schedules: which gradients share a bucket, which bytes go first, and when results are waited for.

A schedule does not change what is computed, only when. docs/concepts/schedules.md explains each.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass

from .._errors import bad_argument
from .._layout import DEFAULT_BUCKET_BYTES

Priorities = tuple[int, int]  # of a bucket's partial sums, and of its results; 0 is the most urgent

MiB = 1 << 20


def _as_ready(_: int, __: int) -> Priorities:
    return 0, 0


@dataclass(frozen=True)
class Schedule:
    """One row of the table."""

    name: str
    bucket_bytes: int  # unless the user says otherwise
    rebuilds: bool = False  # buckets follow the order in which the first step's gradients became ready
    waits_in_forward: bool = False  # the next forward pass waits, layer by layer, and not the end of backward
    priorities: Callable[[int, int], Priorities] = _as_ready  # of bucket i of n, in the order of the backward pass
    planned: bool = False  # after some steps, the coordinator says which gradients share a bucket
    groups: int = 0  # mergecomp: exactly so many; 0: as many as the coordinator finds best
    budget_bytes: int = 0  # of buckets in flight between nodes, as it was asked for; 0: it was not


def _by_layer(number: int, count: int) -> Priorities:
    return count - 1 - number, count - 1 - number


def _sums_then_results(number: int, count: int) -> Priorities:
    return 0, count - number


# Sizes: PyTorch's bucket_cap_mb, HOROVOD_FUSION_THRESHOLD, BYTEPS_PARTITION_BYTES and DeAR's THRESHOLD.
_SCHEDULES = {
    schedule.name: schedule
    for schedule in (
        Schedule("wfbp", 1),
        Schedule("ddp", 25 * MiB, rebuilds=True),
        Schedule("fusion", 128 * MiB),
        Schedule("bytescheduler", 4 * MiB, rebuilds=True, waits_in_forward=True, priorities=_by_layer),
        Schedule("dear", 4 * MiB, rebuilds=True, waits_in_forward=True, priorities=_sums_then_results),
        Schedule("mg-wfbp", DEFAULT_BUCKET_BYTES, rebuilds=True, planned=True),
        Schedule("mergecomp", DEFAULT_BUCKET_BYTES, rebuilds=True, planned=True),
        Schedule("auto", 2 * MiB, rebuilds=True, waits_in_forward=True, priorities=_by_layer, planned=True),
    )
}
# What `auto` is where results cannot be left to the next forward pass.
_IN_BACKWARD = Schedule("auto", DEFAULT_BUCKET_BYTES, planned=True)
DEFAULT = "auto"
GROUPS_MAX = 1024  # server/scheduling/job/job_question.h
BUDGET_MAX = 1 << 40  # proto/budget.h
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_WAITS = {"backward": (False, _as_ready), "layer": (True, _by_layer), "split": (True, _sums_then_results)}


def schedule_of(asked: str | None) -> Schedule:
    """What was asked for, else GRADBUS_SCHEDULE, else ``auto``. InvalidError for an unknown name."""
    text = asked if asked is not None else os.environ.get("GRADBUS_SCHEDULE", "").strip() or DEFAULT
    name, _, options = text.partition(":") if isinstance(text, str) else (None, "", "")
    if name not in _SCHEDULES:
        source = "DistributedOptimizer: schedule" if asked is not None else "GRADBUS_SCHEDULE"
        raise bad_argument(f"{source}={str(text)[:40]!r} is unknown", f"take one of {', '.join(_SCHEDULES)}")
    return _with_options(_SCHEDULES[name], text, options) if ":" in text else _SCHEDULES[name]


def _with_options(schedule: Schedule, text: str, options: str) -> Schedule:
    for option in options.split(","):
        key, _, value = option.partition("=")
        if key == "budget":
            schedule = dataclasses.replace(schedule, budget_bytes=_budget(value, text))
            continue
        groups = int(value) if value.isascii() and value.isdigit() and len(value) < 5 else 0
        if schedule.name != "mergecomp" or key != "groups" or not 1 <= groups <= GROUPS_MAX:
            raise bad_argument(
                f"schedule {text[:40]!r} has an option that there is not",
                f"mergecomp:groups=N with N from 1 to {GROUPS_MAX} and NAME:budget=BYTES are the only ones",
            )
        schedule = dataclasses.replace(schedule, groups=groups)
    return schedule


def _budget(value: str, text: str) -> int:
    digits, unit = (value[:-1], value[-1]) if value[-1:] in _UNITS else (value, "")
    number = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 15 else 0
    budget = number * _UNITS.get(unit, 1)
    if not 1 <= budget <= BUDGET_MAX:
        raise bad_argument(
            f"schedule {text[:60]!r}: {value[:40]!r} is no number of bytes from 1 to 2^40",
            "write a budget as 16M, or in bytes; K, M and G are 2^10, 2^20 and 2^30",
        )
    return budget


def wants_plan(schedule: Schedule) -> bool:
    """``auto`` only when the environment says so: GRADBUS_PLAN=1."""
    return schedule.planned and (schedule.name != DEFAULT or os.environ.get("GRADBUS_PLAN", "").strip() == "1")


def planned_as(schedule: Schedule, waits: str) -> Schedule:
    """The same with the coordinator's plan: where ranks wait, and so what goes first."""
    waits_in_forward, priorities = _WAITS[waits]
    return dataclasses.replace(schedule, rebuilds=False, waits_in_forward=waits_in_forward, priorities=priorities)


def waits_of(schedule: Schedule) -> str:
    """"backward", "layer" or "split", as the coordinator names it."""
    if not schedule.waits_in_forward:
        return "backward"
    return "split" if schedule.priorities is _sums_then_results else "layer"


def without_forward(schedule: Schedule) -> Schedule:
    """The same where every result is waited for at the end of backward."""
    if not schedule.waits_in_forward:
        return schedule
    if schedule.name == "auto":
        return dataclasses.replace(_IN_BACKWARD, budget_bytes=schedule.budget_bytes)
    return dataclasses.replace(schedule, waits_in_forward=False)

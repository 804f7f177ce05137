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


@dataclass(frozen=True)
class Schedule:
    """One row of the table."""

    name: str
    bucket_bytes: int  # unless the user says otherwise
    rebuilds: bool  # buckets follow the order in which the first step's gradients became ready
    in_forward: bool  # the next forward pass waits, layer by layer, and not the end of backward
    priorities: Callable[[int, int], Priorities]  # of bucket i of n, in the order of the backward pass


def _as_ready(_: int, __: int) -> Priorities:
    return 0, 0


def _by_layer(number: int, count: int) -> Priorities:
    return count - 1 - number, count - 1 - number


def _sums_then_results(number: int, count: int) -> Priorities:
    return 0, count - number


# Sizes: PyTorch's bucket_cap_mb, HOROVOD_FUSION_THRESHOLD, BYTEPS_PARTITION_BYTES and DeAR's THRESHOLD.
_SCHEDULES = {
    schedule.name: schedule
    for schedule in (
        Schedule("wfbp", 1, False, False, _as_ready),
        Schedule("ddp", 25 * MiB, True, False, _as_ready),
        Schedule("fusion", 128 * MiB, False, False, _as_ready),
        Schedule("bytescheduler", 4 * MiB, True, True, _by_layer),
        Schedule("dear", 4 * MiB, True, True, _sums_then_results),
        Schedule("auto", 2 * MiB, True, True, _by_layer),
    )
}
# What `auto` is where results cannot be left to the next forward pass.
_IN_BACKWARD = Schedule("auto", DEFAULT_BUCKET_BYTES, False, False, _as_ready)
DEFAULT = "auto"
SIMULATED_ONLY = ("mg-wfbp", "mergecomp")


def schedule_of(asked: str | None) -> Schedule:
    """What was asked for, else GRADBUS_SCHEDULE, else ``auto``. InvalidError for an unknown name."""
    name = asked if asked is not None else os.environ.get("GRADBUS_SCHEDULE", "").strip() or DEFAULT
    if name in SIMULATED_ONLY:
        raise bad_argument(
            f"schedule '{name}' is simulated by `gradbus plan`, and running jobs do not have it yet",
            f"take one of {', '.join(_SCHEDULES)}",
        )
    if not isinstance(name, str) or name not in _SCHEDULES:
        source = "DistributedOptimizer: schedule" if asked is not None else "GRADBUS_SCHEDULE"
        raise bad_argument(f"{source}={str(name)[:40]!r} is unknown", f"take one of {', '.join(_SCHEDULES)}")
    return _SCHEDULES[name]


def without_forward(schedule: Schedule) -> Schedule:
    """The same where every result is waited for at the end of backward."""
    if not schedule.in_forward:
        return schedule
    return _IN_BACKWARD if schedule.name == "auto" else dataclasses.replace(schedule, in_forward=False)

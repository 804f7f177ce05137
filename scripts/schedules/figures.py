"""Figures of one job's results."""

from __future__ import annotations

import re
import statistics
from typing import Any

UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


def wire_ms(job: dict[str, Any]) -> float:
    """The time of a dense all-reduce at the link's rate: a node sends 2 (n - 1) / n of the bytes."""
    number, unit = re.fullmatch(r"([\d.]+)([kmg]bit)(?:,.*)?", job["job"]["link"]).groups()  # type: ignore[union-attr]
    ranks = job["job"]["ranks"]
    return float(job["bytes"] * 8 * 2 * (ranks - 1) / ranks / (float(number) * UNITS[unit]) * 1e3)


def median_ms(result: dict[str, list[float]]) -> float:
    """Of a step: the middle one of the turns' means."""
    return statistics.median(result["seconds"]) * 1e3


def compute_ms(job: dict[str, Any]) -> float:
    """Of a step without any exchange."""
    return next(median_ms(result) for arm, result in zip(job["job"]["arms"], job["arms"]) if arm[0] == "compute")


def hidden(job: dict[str, Any], result: dict[str, list[float]]) -> float:
    """The share that is hidden of the communication that can be: what the rank did not wait for, of what fits."""
    wire = wire_ms(job)
    return (wire - statistics.mean(result["waited"]) * 1e3) / min(wire, compute_ms(job))

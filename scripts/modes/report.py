"""docs/MODES_BENCH.md from the results."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable
from typing import Any

from modes.training import CONDITIONS, MODES, PACE_MS, RANKS, RATES, SHARDS, TEST_FOLD, Training

Found = Callable[[Training], dict[str, Any] | None]

HEAD = (
    "# Exchange modes, measured\n\n"
    "{ranks} ranks on {ranks} agents, {shards} shards, examples/digits, 20 epochs (580 steps of each rank).\n"
    "A step lasts at least {pace} ms, slept, so that ranks do not compete for cores; *one 2x slower*: the last rank's\n"
    "steps last twice as long; *10 %*: of every rank's steps, at random. Machine: {machine}, {date}.\n`{command}`\n\n"
    "Learning rate: of {rates}, the one with the best accuracy on another held-out fifth of the images, of equal "
    "ranks;\neach mode has its own. One seed: differences below a point mean nothing.\n\n"
    "## Speed\n\n"
    "Steps a second of all ranks together, as a multiple of `sync` under the same condition. Ideal, where nobody "
    "waits:\nthe ranks' own speeds added up, over {ranks} times the slowest's; for the 10 %, the mean of the longest "
    "of {ranks} steps over the mean step.\n"
)


def ideal(condition: int) -> float:
    """What modes that never wait could reach, relative to sync."""
    if condition in (1, 2):
        factor = 2.0 * condition
        return (RANKS - 1 + 1 / factor) / (RANKS / factor)
    if condition == 3:
        anyone = 1 - 0.9**RANKS
        return (1 + 4 * anyone) / (1 + 4 * 0.1)
    return 1.0


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def _machine() -> str:
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return f"{os.cpu_count()} cores, {line.partition(': ')[2]}"
    return f"{os.cpu_count()} cores"


def write(found: Found, best: dict[str, str], path: pathlib.Path, command: str, date: str) -> None:
    """The file."""
    def of(mode: str, index: int) -> dict[str, Any] | None:
        return found(Training(mode, best[mode], TEST_FOLD, CONDITIONS[index]))

    names = [condition.name for condition in CONDITIONS]
    speed, accuracy = [], []
    for mode in (one for one in MODES if one in best):  # the others were not asked for yet
        cells, shares = [], []
        for index in range(len(CONDITIONS)):
            one, base = of(mode, index), of("sync", index)
            cells.append(f"{one['steps_per_s'] / base['steps_per_s']:.2f}" if one and base else "")
            shares.append(f"{100 * one['accuracy']:.1f}" if one else "")
        speed.append([f"`{mode}`", *cells])
        accuracy.append([f"`{mode}`", best[mode], *shares])
    speed.append(["ideal", *(f"{ideal(index):.2f}" for index in range(len(CONDITIONS)))])
    text = HEAD.format(ranks=RANKS, shards=SHARDS, pace=PACE_MS, machine=_machine(), date=date, command=command,
                       rates=", ".join(RATES))  # fmt: skip
    text += "\n" + _table(["mode", *names], speed)
    text += "\n## Accuracy\n\nOf the test images, in percent, after the same number of steps of each rank.\n\n"
    text += _table(["mode", "learning rate", *names], accuracy)
    path.write_text(text)

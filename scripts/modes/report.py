"""docs/MODES_BENCH.md from the results."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable
from typing import Any

from modes import bounds
from modes.training import MODES, RANKS, SHARDS, TASKS, Condition, Task, Training

Found = Callable[[Any], dict[str, Any] | None]
BestRate = Callable[[Task, str], str | None]

HEAD = (
    "# Exchange modes, measured\n\n"
    "Written by `{command}` on {date}. Machine: {machine}. What is in `modes-results.jsonl` from an earlier run was\n"
    "not measured again.\n"
)
TASK_HEAD = (
    "\n## examples/{task}\n\n"
    "{ranks} ranks on {ranks} agents, {shards} shards; `{program}{words}`.\n"
    "A step lasts at least {pace} ms, slept, so that ranks do not compete for cores; *one 2x slower*: the last rank's\n"
    "steps last twice as long; *10 %*: of every rank's steps, at random. Learning rate: of {rates}, the one that\n"
    "trains best with equal ranks, by other data than what is tested here; each mode has its own. One seed: "
    "{noise}.\n\n"
    "Steps a second of all ranks together, as a multiple of `sync` under the same condition. Ideal, where nobody "
    "waits:\nthe ranks' own speeds added up, over as many times the slowest's; for the 10 %, the mean of the longest "
    "of {ranks} steps over the mean step.\n\n"
)
MEASURES = {
    "accuracy": ("Of the test images, in percent, after the same number of steps of each rank.", 100, ".1f",
                 "differences below a point mean nothing"),
    "loss_nats_per_char": ("Cross-entropy on the part of the text held out, in nats a character, after the same number "
                           "of steps of each rank.", 1, ".3f", "differences below 0.02 mean nothing"),
}  # fmt: skip


def ideal(condition: Condition) -> float:
    """What modes that never wait could reach, relative to sync."""
    share, longer = condition.stalls
    ranks = condition.ranks
    anyone = 1 - (1 - share) ** ranks
    slowed = (ranks - 1 + 1 / condition.slow) / (ranks / condition.slow)
    return slowed * (1 + (longer - 1) * anyone) / (1 + (longer - 1) * share)


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def _machine() -> str:
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return f"{os.cpu_count()} cores, {line.partition(': ')[2]}"
    return f"{os.cpu_count()} cores"


def _task(found: Found, best_rate: BestRate, task: Task) -> str:
    explained, times, form, noise = MEASURES[task.measure]
    speed, reached = [], []
    for mode in MODES:
        rate = best_rate(task, mode)
        if rate is None:
            continue  # not asked for yet
        cells, results = [], []
        for condition in task.conditions:
            one, base = (found(Training(task, each, best_rate(task, each) or "", condition)) for each in (mode, "sync"))
            cells.append(f"{one['steps_per_s'] / base['steps_per_s']:.2f}" if one and base else "")
            results.append(format(times * one[task.measure], form) if one else "")
        speed.append([f"`{mode}`", *cells])
        reached.append([f"`{mode}`", rate, *results])
    if not speed:
        return ""
    speed.append(["ideal", *(f"{ideal(condition):.2f}" for condition in task.conditions)])
    names = [condition.name for condition in task.conditions]
    words = "".join(f" {word}" for word in task.words)
    return (
        TASK_HEAD.format(ranks=RANKS, shards=SHARDS, task=task.name, program=task.program, words=words,
                         pace=task.pace_ms, rates=", ".join(task.rates), noise=noise)
        + _table(["mode", *names], speed)
        + f"\n{explained}\n\n"
        + _table(["mode", "learning rate", *names], reached)
    )  # fmt: skip


def _served(found: Found) -> str:
    rows = []
    for bench in bounds.SERVED_BENCHES:
        one = found(bench)
        if one:
            bound, best, median = (value / 1e3 for value in (bench.bound_us(), one["time"], one["time_p50"]))
            rows.append([str(bench.nodes), str(bench.shards), f"{bound:.0f}", f"{best:.0f}", f"{median:.0f}",
                         f"{bound / median:.2f}"])  # fmt: skip
    if not rows:
        return ""
    return (
        f"\n## Shards on links of {bounds.LINK}\n\n"
        f"`{bounds.SERVED_BENCHES[0].command()}` and so on: {bounds.SERVED_MIB} MiB, n nodes, k shards, each with "
        "such a link of its own.\nBound: max(M / B, n M / (k B)), without the packets' headers, which take 5 % of a "
        "link.\n\n" + _table(["nodes", "shards", "bound, ms", "best, ms", "median, ms", "bound / median"], rows)
    )


def _placed(found: Found) -> str:
    rows = []
    for bench in bounds.PLACED:
        one = found(bench)
        if one:
            bound, median = bench.bound_us() / 1e3, one["time_p50"] / 1e3
            rows.append([str(bench.nodes), ", ".join(bench.where), bench.slow or "-",
                         "equal" if bench.equal else ", ".join(f"{part:.3f}" for part in bench.parts),
                         f"{bound:.0f}", f"{median:.0f}", f"{bound / median:.2f}"])  # fmt: skip
    if not rows:
        return ""
    return (
        "\n## Shards beside agents, and on slower links\n\n"
        f"`{bounds.PLACED[0].command()}` and so on: {bounds.PLACED_MIB} MiB; one of them on a link of half the rate "
        "where it says so.\nBound: the slowest link's, for the shares of the shards (design/parameter-server.md).\n\n"
        + _table(["nodes", "shards on", "slower", "parts", "bound, ms", "median, ms", "bound / median"], rows)
    )


def _local(found: Found) -> str:
    rows, copies = [], found(bounds.COPIES)
    for bench in bounds.LOCAL_BENCHES:
        one = found(bench)
        if one:
            mode = f"`{bench.mode}`" + (f" with `{bench.codec}`" if bench.codec else "")
            mode += ", TCP" if bench.sockets else ""
            rate, shards = bench.mib * 2**20 / one["time_p50"] / 1e3, one.get("shards_cpu_s_per_gb")
            bound = copies["gb_per_s"] / bench.passes() if copies and not bench.codec else None
            rows.append([mode, f"{rate:.2f}", f"{bound:.2f}" if bound else "-", f"{rate / bound:.2f}" if bound else "-",
                         f"{one['cpu_s_per_gb']:.2f}", f"{shards:.2f}" if shards else "-"])  # fmt: skip
    if not rows:
        return ""
    return (
        "\n## Inside one machine\n\n"
        f"`{bounds.LOCAL_BENCHES[2].command()}` and so on: two ranks on two agents, two shards, {bounds.LOCAL_MIB} "
        "MiB, all of them on these cores, joined by the memory that they share, or, *TCP*, by TCP on loopback "
        "(`GRADBUS_AGENT_LOCAL_LINKS=false`).\nBound: what these cores copy into sockets and out of them when they do "
        "nothing else (`scripts/modes/copies.py`), over how often a dense gradient passes one. Shared memory needs no "
        "more copies than a socket, and spares what the kernel does beside them.\n"
        "CPU time is of all processes together, and of the shards among them, for each GB of gradient.\n\n"
        + _table(["mode", "GB/s", "bound", "of bound", "CPU s / GB", "of it shards"], rows)
    )


def _overlap(found: Found) -> str:
    base = found(bounds.OVERLAPS[0])
    done = [(one, found(one)) for one in bounds.OVERLAPS]
    if base is None:
        return ""
    rows = [[f"`{one.mode}`", f"{result['steps_per_s'] / 2:.2f}", f"{result['steps_per_s'] / base['steps_per_s']:.2f}"]
            for one, result in done if result]  # fmt: skip
    return (
        "\n## A job that communicates as long as it computes\n\n"
        f"`{bounds.OVERLAPS[0].command()}`: two ranks, 102.5 MB of gradients, links of {bounds.LINK} that need about "
        "as long for them as a step computes.\n`sync` hides what it can: gradients come in the last part of a step. "
        "Ideal: 2.\n\n" + _table(["mode", "steps a second of a rank", "of sync"], rows)
    )


def write(found: Found, best_rate: BestRate, path: pathlib.Path, command: str, date: str) -> None:
    """The file."""
    text = HEAD.format(machine=_machine(), date=date, command=command)
    for task in TASKS:
        text += _task(found, best_rate, task)
    path.write_text(text + _overlap(found) + _served(found) + _placed(found) + _local(found))

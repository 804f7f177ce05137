"""docs/benchmarks/modes.md from the results."""

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
    "# Sync modes, measured\n\n"
    "`{command}` wrote this page on {date}. Machine: {machine}. Results that `modes-results.jsonl` already had were "
    "not\nmeasured again.\n"
)
TASK_HEAD = (
    "\n## examples/{task}\n\n"
    "The program is `{program}{words}`, with {ranks} ranks on {ranks} agents and {shards} shards.\n\n"
    "- A step lasts at least {pace} ms. Ranks sleep for the rest of that time, so they do not compete for cores.\n"
    "- *One 2x slower*: the steps of the last rank last twice as long. *10 %*: random steps of every rank last "
    "longer.\n- Each mode has its own learning rate: the one of {rates} that trains best with equal ranks. It was "
    "chosen on other\n  data than the test data.\n"
    "- There is one seed, so {noise}.\n\n"
    "The table shows the steps per second of all ranks together, as a multiple of `sync` under the same condition.\n"
    "Ideal means that no rank waits. It is the sum of the ranks' own speeds, divided by the number of ranks times the "
    "speed\nof the slowest one. For the 10 %, it is the mean of the longest of {ranks} steps, divided by the mean "
    "step.\n\n"
)
MEASURES = {
    "accuracy": ("Accuracy on the test images in percent, after the same number of steps of each rank.", 100, ".1f",
                 "differences below a point mean nothing"),
    "loss_nats_per_char": ("Cross-entropy on the held-out text in nats per character, after the same number of "
                           "steps of each rank.", 1, ".3f", "differences below 0.02 mean nothing"),
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
        f"The first command is `{bounds.SERVED_BENCHES[0].command()}`.\nThe tensor has {bounds.SERVED_MIB} MiB. There "
        "are n nodes and k shards, each with its own link.\nThe bound is max(M / B, n M / (k B)). It leaves out packet "
        "headers, which take 5 % of a link.\n\n"
        + _table(["nodes", "shards", "bound, ms", "best, ms", "median, ms", "bound / median"], rows)
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
        f"The first command is `{bounds.PLACED[0].command()}`.\nThe tensor has {bounds.PLACED_MIB} MiB. The column "
        "*slower* names a shard whose link has half the rate.\nThe bound is the time of the slowest link, for the "
        "shares of the shards ([design](../design/parameter-server.md)).\n\n"
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
        f"One command is `{bounds.LOCAL_BENCHES[2].command()}`.\nTwo ranks on two agents and two shards share these "
        f"cores. The tensor has {bounds.LOCAL_MIB} MiB. Daemons are joined by shared memory. In rows with *TCP* they "
        "are joined by TCP on loopback\n(`GRADBUS_AGENT_LOCAL_LINKS=false`).\n\n"
        "`scripts/modes/copies.py` measures the rate at which these cores copy data into and out of sockets.\n"
        "The bound is that rate, divided by the number of sockets that a dense gradient passes. Shared memory needs "
        "the same number of copies, but\navoids the other work of the kernel. CPU time is for each GB of gradient, of "
        "all processes and of the shards.\n\n"
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
        f"The first command is `{bounds.OVERLAPS[0].command()}`.\nTwo ranks exchange 102.5 MB of gradients per step. "
        f"A link of {bounds.LINK} needs about as long for that as a step computes.\n`sync` hides only a part of the "
        "exchange, because gradients are ready in the last part of a step. Ideal is 2.\n\n"
        + _table(["mode", "steps a second of a rank", "of sync"], rows)
    )


def write(found: Found, best_rate: BestRate, path: pathlib.Path, command: str, date: str) -> None:
    """The file."""
    text = HEAD.format(machine=_machine(), date=date, command=command)
    for task in TASKS:
        text += _task(found, best_rate, task)
    path.write_text(text + _overlap(found) + _served(found) + _placed(found) + _local(found))

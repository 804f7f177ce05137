"""The page: a table for each model and link."""

from __future__ import annotations

import re
import statistics
from typing import Any

from schedules.cases import name_of

UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


def wire_ms(job: dict[str, Any]) -> float:
    """The time of a dense all-reduce at the link's rate: a node sends 2 (n - 1) / n of the bytes."""
    number, unit = re.fullmatch(r"([\d.]+)([kmg]bit)(?:,.*)?", job["job"]["link"]).groups()  # type: ignore[union-attr]
    ranks = job["job"]["ranks"]
    return float(job["bytes"] * 8 * 2 * (ranks - 1) / ranks / (float(number) * UNITS[unit]) * 1e3)


def median_ms(result: dict[str, list[float]]) -> float:
    """Of a step."""
    return statistics.median(result["seconds"]) * 1e3


def table_of(job: dict[str, Any]) -> str:
    """Markdown: a row for each arm."""
    arms = list(zip(job["job"]["arms"], job["arms"]))
    compute = next(median_ms(result) for arm, result in arms if arm[0] == "compute")
    ddp = next((median_ms(result) for arm, result in arms if arm[0] == "ddp"), None)
    bound = max(compute, wire_ms(job))
    lines = ["| | step | to DDP | to the bound | exposed | rank waited |", "| --- | --- | --- | --- | --- | --- |"]
    for arm, result in arms:
        if arm[0] == "compute":
            continue
        step = median_ms(result)
        waited = f"{statistics.mean(result['waited']) * 1e3:.0f} ms" if arm[0] == "gradbus" else ""
        to_ddp = f"{step / ddp:.2f}" if ddp else ""
        dense = arm[2] == "none" and arm[0] != "ddp-fp16"
        to_bound = f"{step / bound:.2f}" if dense else ""
        lines.append(
            f"| {name_of(tuple(arm))} | {step:.0f} ms | {to_ddp} | {to_bound} | {step - compute:.0f} ms | {waited} |"
        )
    return "\n".join(lines) + "\n"


def page(results: dict[str, Any]) -> str:
    """The whole page."""
    machine = results["machine"]
    text = f"""# Schedules

Steps of a training with simulated links between the nodes, measured by `scripts/schedules.sh` on {results["date"]}:
{machine["cores"]} cores, {machine["processor"]}. Each rank is on a node of its own and computes with one thread.
So ranks and agents share two cores, and communication slows computation down.

All rows of a table are from one job. Its ranks trained in each way by turns, {results["rounds"]} turns of
{results["steps"]} steps each. So compare rows of one table only. A figure is a median.

- **to DDP**: divided by DistributedDataParallel (Gloo, buckets of 25 MiB, gradients as views of buckets).
- **to the bound**: divided by the larger of two times. One is computation alone. The other is the wire's: the
  bytes of a dense all-reduce at the rate of the link.
- **exposed**: the step minus computation alone. It contains waits and the slowdown of computation.
- **rank waited**: the mean of the waits alone, as `optimizer.exposed_communication()` counts them.

[Schedules](../concepts/schedules.md) explains the names. Horovod is not in these tables.
"""
    for job in results["jobs"]:
        of = job["job"]
        compute = next(median_ms(r) for arm, r in zip(of["arms"], job["arms"]) if arm[0] == "compute")
        text += f"""
## {of["model"]}, {of["link"]}
{job["bytes"] / 4e6:.1f} M parameters, {of["ranks"]} ranks, batch of {of["batch_size"]}. Computation alone takes
{compute:.0f} ms, the wire {wire_ms(job):.0f} ms.

{table_of(job)}"""
    return text

"""The page: a table for each model and link."""

from __future__ import annotations

import statistics
from typing import Any

from schedules.cases import PLANNED, is_of_older_torch, name_of
from schedules.figures import compute_ms, hidden, median_ms, wire_ms


def _plan_text(result: dict[str, Any]) -> str:
    """How many buckets, and where ranks wait."""
    plan = result.get("plan")
    if plan is None:
        return ""
    place = {"backward": "backward", "step": "step()", "layer": "forward", "split": "forward, split"}[plan["waits"]]
    return f"{len(plan['bucket_bytes'])}, {place}"


def _prediction_text(job: dict[str, Any], arm: list[Any], step_ms: float) -> str:
    """Of dense schedules with their own buckets, and by how much it is wrong."""
    who, schedule, codec, bucket_bytes = arm
    predicted = job.get("predicted_us", {}).get(schedule.removesuffix(PLANNED))
    is_static = schedule == "auto"  # the planner's auto is the planned one
    if who != "gradbus" or predicted is None or is_static or codec != "none" or bucket_bytes:
        return ""
    return f"{predicted / 1e3:.0f} ms ({predicted / 1e3 / step_ms - 1:+.0%})"


def table_of(job: dict[str, Any]) -> str:
    """Markdown: a row for each arm."""
    arms = list(zip(job["job"]["arms"], job["arms"]))
    compute = compute_ms(job)
    ddp = next((median_ms(result) for arm, result in arms if arm[0] == "ddp"), None)
    lines = ["| | step | to DDP | to the bound | exposed | rank waited | buckets | predicted |",
             "| --- | --- | --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    for arm, result in arms:
        if arm[0] == "compute":
            continue
        step = median_ms(result)
        alone = statistics.median(result["alone"]) * 1e3 if "alone" in result else compute
        plan, predicted = _plan_text(result), _prediction_text(job, arm, step)
        waited = f"{statistics.mean(result['waited']) * 1e3:.0f} ms" if arm[0].startswith("gradbus") else ""
        to_ddp = f"{step / ddp:.2f}" if ddp and not is_of_older_torch(arm[0]) else ""
        is_dense = arm[2] == "none" and arm[0] != "ddp-fp16"
        to_bound = f"{step / max(alone, wire_ms(job)):.2f}" if is_dense else ""
        columns = [
            name_of(tuple(arm)), f"{step:.0f} ms", to_ddp, to_bound, f"{step - alone:.0f} ms",
            waited, plan, predicted,
        ]  # fmt: skip
        lines.append(f"| {' | '.join(columns)} |")
    return "\n".join(lines) + "\n"


def _whole(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those with all dense schedules. Others have rows of another day, for example those of codecs."""
    return [job for job in jobs if "part" not in job]


def summary_of(jobs: list[dict[str, Any]]) -> str:
    """Markdown: how far `auto` is from the fastest dense schedule, and from DDP."""
    lines = ["| | fastest | `auto` to it | `auto`, planned, to it | `auto` to DDP | planned to DDP | `auto` to Horovod "
             "|", "| --- | --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    for job in _whole(jobs):
        of = job["job"]
        older = {
            arm[0]: median_ms(result)
            for other in jobs if (other["job"]["model"], other["job"]["link"]) == (of["model"], of["link"])
            for arm, result in zip(other["job"]["arms"], other["arms"])
            if arm[2] == "none" and is_of_older_torch(arm[0])
        }  # fmt: skip
        dense = {
            tuple(arm): median_ms(result)
            for arm, result in zip(of["arms"], job["arms"])
            if arm[2] == "none" and arm[0] in ("gradbus", "ddp")
        }
        by_name = {arm[1] or arm[0]: ms for arm, ms in dense.items()}
        fastest = min(dense, key=lambda arm: dense[arm])
        auto, planned = by_name.get("auto"), by_name.get("auto" + PLANNED)
        if auto is None:
            continue
        ddp = dense.get(("ddp", "", "none", None))
        columns = [
            f"{of['model']}, {of['link']}", name_of(fastest), f"{auto / dense[fastest]:.2f}",
            f"{planned / dense[fastest]:.2f}" if planned else "", f"{auto / ddp:.2f}" if ddp else "",
            f"{planned / ddp:.2f}" if planned and ddp else "",
            f"{older['gradbus-older'] / older['horovod']:.2f}" if "gradbus-older" in older else "",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(columns)} |")
    return "\n".join(lines) + "\n"


def hidden_of(jobs: list[dict[str, Any]]) -> str:
    """Markdown: which share of the communication that can be hidden each dense schedule hides, and the bound."""
    names = ("auto", "bytescheduler", "dear", "wfbp", "ddp")
    lines = [f"| | {' | '.join(f'`{name}`' for name in names)} | best step to the bound |",
             f"| --- |{' --- |' * (len(names) + 1)}"]  # fmt: skip
    for job in _whole(jobs):
        of = job["job"]
        dense = {
            arm[1]: result for arm, result in zip(of["arms"], job["arms"])
            if arm[0] == "gradbus" and arm[2] == "none" and not arm[3]
        }  # fmt: skip
        shares = [f"{hidden(job, dense[name]):.0%}" if name in dense else "" for name in names]
        best = min(median_ms(result) for result in dense.values()) / max(compute_ms(job), wire_ms(job))
        lines.append(f"| {of['model']}, {of['link']} | {' | '.join(shares)} | {best:.2f} |")
    return "\n".join(lines) + "\n"


def _when_text(job: dict[str, Any]) -> str:
    """Of a job that was measured on another day than the page."""
    if "date" not in job:
        return ""
    of = f"{job['rounds']} turns of {job['steps']} steps each"
    where = f", {job['machine']['processor']}" if "machine" in job else ""
    return f"\nMeasured on {job['date']}: {of}{where}."


def _horovod_text(jobs: list[dict[str, Any]]) -> str:
    if not any(arm[0] == "horovod" for job in jobs for arm in job["job"]["arms"]):
        return "Horovod is not in these tables."
    return (
        "Horovod needs an older PyTorch, Debian's\n1.13, which computes more slowly here. Its rows are from a launch "
        "of their own, right after the others, and `auto`\nwith that PyTorch from another one. Each has computation "
        "alone beside it, for the columns *exposed* and *to the\nbound*. Its `fp16` is `hvd.Compression.fp16`. It "
        "looks for gradients every 0.1 ms, in a thread\nthat slows computation alone as well. So compare steps with "
        "that PyTorch, not what is exposed."
    )


def page(results: dict[str, Any]) -> str:
    """The whole page."""
    machine = results["machine"]
    text = f"""# Schedules

Steps of a training with simulated links between the nodes, measured by `scripts/schedules.sh` on {results["date"]}:
{machine["cores"]} cores, {machine["processor"]}. Each rank is on a node of its own and computes with one thread.
So ranks and agents share two cores, and communication slows computation down.

All rows of a table are from one job. Its ranks trained in each way by turns, {results["rounds"]} turns of
{results["steps"]} steps each. So compare rows of one table only. A step is the mean of a turn, and of
these the median: some schedules leave a part of a step to the next one, so single steps differ by a third.

- **to DDP**: divided by DistributedDataParallel (Gloo, buckets of 25 MiB, gradients as views of buckets).
- **to the bound**: divided by the larger of two times. One is computation alone. The other is the wire's: the
  bytes of a dense all-reduce at the rate of the link.
- **exposed**: the step minus computation alone. It contains waits and the slowdown of computation. Some are
  below zero: computation alone, which also has its turns, was slower than these steps. Why is not known.
- **rank waited**: the mean of the waits alone, as `optimizer.exposed_communication()` counts them.
- **buckets**: their number, and where the ranks wait (`optimizer.exchange_plan()`).
- **predicted**: by `gradbus plan --replay`, from a recording of the same job. In brackets: how far that is from
  the measured step.
- **planned**: with `GRADBUS_PLAN=1`. Plans were made, and tried, before the first turn.

[Schedules](../concepts/schedules.md) explains the names. {_horovod_text(results["jobs"])}

## How good `auto` is
Ratios of steps; 1.00 is the fastest dense row of the job.

{summary_of(results["jobs"])}
## How much is hidden
The wire's time minus the time that the ranks waited, divided by what can be hidden: the smaller one of the wire's
time and computation. Agents share the two cores with the ranks and slow computation down. So more than 100 % may hide
behind it, and a step is above the bound even where nobody waits.

{hidden_of(results["jobs"])}"""
    for job in results["jobs"]:
        of = job["job"]
        text += f"""
## {of["model"]}, {of["link"]}{", " + job["part"] if "part" in job else ""}
{job["bytes"] / 4e6:.1f} M parameters, {of["ranks"]} ranks, batch of {of["batch_size"]}. Computation alone takes
{compute_ms(job):.0f} ms, the wire {wire_ms(job):.0f} ms.{_when_text(job)}

{table_of(job)}"""
    return text

"""Writes docs/benchmarks/accuracy.md and its pictures from what the trainings ended with."""

from __future__ import annotations

import math
import pathlib
import shlex

from accuracy import plot
from accuracy.results import Results, Summary, summarize
from accuracy.rows import DENSE, RANKS, Row, Task, rows
from accuracy.training import Training

KIB = 1024


def table(header: list[str], cells: list[list[str]]) -> list[str]:
    """A Markdown table."""
    return [f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *cells)]


def with_spread(value: str, spread: str, seeds: int) -> str:
    """97.55 ± 0.20; of one seed there is no spread."""
    return f"{value} ± {spread}" if seeds > 1 else value


def metric_text(task: Task, summary: Summary) -> str:
    """The mean over the seeds."""
    if not math.isfinite(summary.mean):
        return "diverges"
    factor, digits = (100, 2) if task.percent else (1, 4)
    mean, spread = (f"{value * factor:.{digits}f}" for value in (summary.mean, summary.spread))
    return with_spread(mean, spread, summary.seeds)


def worse_text(task: Task, summary: Summary) -> str:
    """By how much it differs from dense, in the direction of the metric."""
    if summary.row.name == DENSE:
        return "-"
    if not math.isfinite(summary.worse):
        return "-"
    sign = -1 if task.higher_is_better else 1
    return with_spread(f"{sign * summary.worse + 0.0:+.2f}", f"{summary.worse_error:.2f}", summary.seeds)


def verdict(task: Task, summary: Summary) -> str:
    """Of the bound."""
    if summary.row.name == DENSE:
        return "-"
    return "yes" if summary.met(task) else "**no**"


def cells(task: Task, summary: Summary) -> list[str]:
    """A row."""
    row = summary.row
    settings = " ".join(f"`{text}`" for text in (row.spec, shlex.join(row.options)) if text) or "-"
    return [row.name, settings, str(summary.seeds), metric_text(task, summary),
            worse_text(task, summary), verdict(task, summary), f"{summary.bytes_per_step / KIB:.1f}",
            f"1/{summary.fewer:.1f}"]  # fmt: skip


def section(results: Results, task: Task, seeds: list[int], folder: pathlib.Path) -> list[str]:
    """A task: how it is trained, the picture, what is promised, and what else was tried."""
    found = [s for row in rows(task) if (s := summarize(results, task, row, seeds))]
    if not found:
        return []
    picture = f"accuracy-{task.name}.svg"
    plot.draw(task, found, folder / picture)
    difference = "points" if task.percent else "%"
    header = ["compression", "settings", "seeds", task.axis, f"to dense, {difference}", "within", "KiB per step",
              "of dense"]  # fmt: skip
    bounded = [cells(task, s) for s in found if s.row.bounded]
    shown = [[*cells(task, s), s.row.note] for s in found if not s.row.bounded]
    command = Training(task, Row(DENSE), seeds[0]).command()
    return [f"## {task.title}", "", *task.text, "", f"Dense, seed {seeds[0]}: `{command}`", "",
            f"{found[0].compressible:.1%} of the gradient's bytes are of parameters that are compressed "
            "(two dimensions, 16,384 elements and more).", "",
            f"![{task.title}: {task.axis} against bytes sent]({picture})", "",
            f"Aim: {task.bound_text()}.", "", *table(header, bounded), "",
            *(["For comparison:", "", *table([*header, "what it shows"], shown), ""] if shown else [])]  # fmt: skip


def introduction(command: str) -> list[str]:
    """What is compared and how."""
    return [
        "# Accuracy with compression", "",
        f"Written by `{command}`. These are real trainings on {RANKS} ranks. Each rank has an agent of its own, so "
        "every rank's gradient is compressed.", "",
        "All runs of a task have the same model, data, batches, steps, learning rates and momentum. The seed decides "
        "the initial parameters and the order of the batches. It is the same for dense and compressed runs. Figures "
        "are of the parameters after the last step. No step is selected by its test result.", "",
        "- **±** after a figure is the standard deviation over the seeds. The difference to dense is the mean of the "
        "differences per seed, with its standard error.",
        "- **KiB per step** is what one rank's agent sent to the other three. It is the mean over all steps, with "
        "warm-up and dense small gradients. The agents count it (`sent_bytes` of `gradbus status --json`).",
        "- **Of dense** compares with 1.5 gradients, the least that an all-reduce can send per rank with four ranks. "
        "A ring sends 1.5 gradients. Recursive doubling sends 2; the coordinator may choose it from measured "
        "latencies. With all-gather, a payload goes to three ranks. So a codec with 1/32 of the bits sends 1/16 of the "
        "bytes. Biases, norms and small matrices are not compressed, which bounds the ratio of the strongest codecs.",
        "- **Seeds** differ in number. A row without ± is one training. On digits that says little, because one image "
        "is 0.28 points. Missing rows and seeds have not been trained. A mean is over the row's own seeds. So compare "
        "rows by the difference to dense. The picture is not comparable where numbers of seeds differ.",
        "- **Warm-up** of dgc and topk takes the first quarter of these short trainings and sends 8 % of the elements "
        "on average. That is most of what these rows send. After it, they send the same as a row without warm-up.",
        "- **`--momentum-compressed 0`**: with `ef=dgc` the codec applies the momentum of 0.9 (momentum correction). "
        "So the optimizer has no momentum for compressed gradients. All other gradients keep 0.9 in the optimizer, as "
        "in DGC.", "",
    ]  # fmt: skip


def write(results: Results, tasks: list[Task], seeds: list[int], folder: pathlib.Path, command: str) -> pathlib.Path:
    """The report's path."""
    folder.mkdir(parents=True, exist_ok=True)
    text = introduction(command)
    for task in tasks:
        text += section(results, task, seeds[: task.seeds], folder)
    path = folder / "accuracy.md"
    path.write_text("\n".join(text).rstrip() + "\n")
    return path

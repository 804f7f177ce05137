"""One picture per task: where every compression ended, against the bytes it sent.

SVG with text as text, and nothing in it that changes from run to run but the figures.
"""

from __future__ import annotations

import math
import pathlib
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402 - the backend is chosen first

from accuracy.results import Summary  # noqa: E402
from accuracy.rows import DENSE, Task  # noqa: E402

STYLE: Any = {"svg.fonttype": "none", "svg.hashsalt": "gradbus", "font.size": 10, "axes.spines.top": False,
         "axes.spines.right": False, "font.family": "sans-serif"}
BOUNDED, SHOWN, DENSE_COLOUR = "#b3202c", "#7f7f7f", "#1f4e79"
KIB = 1024
LABELS_ABOVE_EACH_OTHER = 24
LABEL_DECADES = 0.42  # a label's width on the axis of bytes
LINE: Any = {"arrowstyle": "-", "color": "#bbbbbb", "linewidth": 0.6}
BEHIND: Any = {"boxstyle": "square,pad=0.05", "facecolor": "white", "edgecolor": "none", "alpha": 0.75}
ROOM = 0.6  # of the plotted range of bounded rows: what lies further off is drawn at the edge, with its figure


def scaled(task: Task, value: float) -> float:
    """As the axis shows it."""
    return value * 100 if task.percent else value


def allowed(task: Task, summaries: list[Summary]) -> float:
    """How much worse than dense may be, on the axis."""
    return task.bound if task.percent else dense_of(summaries).mean * task.bound / 100


def dense_of(summaries: list[Summary]) -> Summary:
    """What all others are compared with."""
    return next(summary for summary in summaries if summary.row.name == DENSE)


def limits(task: Task, summaries: list[Summary]) -> tuple[float, float]:
    """Of the axis: all that is bounded, and room for what is not much worse."""
    values = [scaled(task, s.mean) for s in summaries if s.row.bounded]
    spreads = [scaled(task, s.spread) for s in summaries if s.row.bounded]
    low, high = min(v - e for v, e in zip(values, spreads)), max(v + e for v, e in zip(values, spreads))
    room = max((high - low) * ROOM, 1.5 * allowed(task, summaries))
    return (low - room, high + room / 4) if task.higher_is_better else (low - room / 4, high + room)


def colour_of(summary: Summary) -> str:
    """By what is promised of it."""
    if summary.row.name == DENSE:
        return DENSE_COLOUR
    return BOUNDED if summary.row.bounded else SHOWN


def draw_point(axes: plt.Axes, task: Task, summary: Summary, low: float, high: float) -> tuple[float, float, str]:
    """A point with its spread; (x, y, label)."""
    x, value = summary.bytes_per_step / KIB, scaled(task, summary.mean)
    y = min(max(value, low), high) if math.isfinite(value) else (low if task.higher_is_better else high)
    outside = y != value
    marker = ("v" if y == low else "^") if outside else "o"
    axes.errorbar([x], [y], yerr=None if outside else [scaled(task, summary.spread)], fmt=marker, markersize=6,
                  color=colour_of(summary), ecolor=colour_of(summary), elinewidth=1, capsize=2.5, zorder=3)
    return x, y, f"{summary.row.name} ({value:.3g})" if outside else summary.row.name


def draw_labels(axes: plt.Axes, points: list[tuple[float, float, str]], low: float, high: float) -> None:
    """Beside the points; a label that would lie on another one moves up or down."""
    step = (high - low) / LABELS_ABOVE_EACH_OTHER
    taken: list[tuple[float, float]] = []  # (log10 of x, y) of labels
    for x, y, label in sorted(points, key=lambda point: -point[1]):
        at, place = y, math.log10(x)
        while any(abs(place - other) < LABEL_DECADES and abs(at - beside) < step for other, beside in taken):
            at += step / 4 if y == low else -step / 4
        taken.append((place, at))
        axes.annotate(label, (x, y), xytext=(x * 1.06, at), fontsize=8.5, va="center", zorder=2.5, bbox=BEHIND,
                      arrowprops=LINE if abs(at - y) > step / 2 else None)  # fmt: skip


def draw(task: Task, summaries: list[Summary], path: pathlib.Path) -> None:
    """Writes the picture."""
    low, high = limits(task, summaries)
    dense = scaled(task, dense_of(summaries).mean)
    worst = dense + allowed(task, summaries) * (-1 if task.higher_is_better else 1)
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(9, 5.2))
        axes.axhline(dense, color=DENSE_COLOUR, linewidth=1, zorder=1)
        axes.axhline(worst, color=DENSE_COLOUR, linewidth=1, linestyle="--", zorder=1)
        points = [draw_point(axes, task, summary, low, high) for summary in summaries]
        draw_labels(axes, points, low, high)
        axes.set(xscale="log", xlabel="KiB that a rank's agent sends per step, mean of the whole training",
                 ylabel=task.axis, title=f"{task.title}: what a training ends with")
        axes.set_ylim(low - (high - low) * 0.03, high + (high - low) * 0.03)
        xs = [x for x, _, _ in points]
        axes.set_xlim(min(xs) / 1.3, max(xs) * 2)
        axes.text(max(xs) * 2, worst, "bound", fontsize=8.5, color=DENSE_COLOUR, va="bottom", ha="right")
        axes.xaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_minor_locator(matplotlib.ticker.NullLocator())
        axes.xaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda value, _: f"{value:g}"))
        axes.grid(True, color="#dddddd", linewidth=0.6)
        figure.tight_layout()
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
        plt.close(figure)

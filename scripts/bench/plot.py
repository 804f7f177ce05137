"""One picture per experiment: time against size, both logarithmic, with the limit as a dashed line.

SVG with text as text, and nothing in it that changes from run to run but the figures.
"""

from __future__ import annotations

import pathlib

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402 - the backend is chosen first

from bench import limits, results  # noqa: E402
from bench.results import Entry  # noqa: E402
from bench.units import size_text  # noqa: E402

STYLE = {"svg.fonttype": "none", "svg.hashsalt": "gradbus", "font.size": 10, "axes.spines.top": False,
         "axes.spines.right": False, "font.family": "sans-serif"}
OURS = ("#b3202c", "#e8833a")  # Gradbus in warm colours, peers in cold ones
PEERS = ("#1f4e79", "#3f8fc0", "#5c6bc0", "#2e8b57", "#7f7f7f")
MARKERS = "osD^v<>"
SIZES_MIN = 2  # a line needs two points


def curve(entrant: Entry) -> tuple[list[int], list[float]]:
    """Sizes and best times, ascending; without cells that came out wrong."""
    points = [(int(cell), results.best_us(entrant, cell)) for cell in entrant["cells"] if cell.isdigit()]
    found = sorted((size, time) for size, time in points if time is not None)
    return [size for size, _ in found], [time for _, time in found]


def draw_entrants(axes: plt.Axes, experiment: Entry) -> None:
    """A line each."""
    colours = {True: iter(OURS), False: iter(PEERS)}
    for marker, entrant in zip(MARKERS, experiment["entrants"]):
        sizes, times = curve(entrant)
        colour = next(colours[entrant["ours"]], "#000000")
        if sizes:
            axes.plot(sizes, times, marker=marker, markersize=4, color=colour, label=entrant["name"],
                      linewidth=2.2 if entrant["ours"] else 1.2, zorder=3 if entrant["ours"] else 2)


def draw_limit(axes: plt.Axes, experiment: Entry, rates: Entry) -> None:
    """The least time the machine or the link allows."""
    sizes = [int(cell) for cell in results.all_cells(experiment) if cell.isdigit()]
    points = [(size, limits.limit_us(experiment, size, rates)) for size in sizes]
    found = [(size, time) for size, time in points if time]
    if found:
        axes.plot(*zip(*found), linestyle="--", color="black", linewidth=1, label="limit", zorder=1)


def draw(experiment: Entry, rates: Entry, path: pathlib.Path) -> bool:
    """Writes the picture; False when there are too few sizes for one."""
    sizes = [int(cell) for cell in results.all_cells(experiment) if cell.isdigit()]
    if len(sizes) < SIZES_MIN:
        return False
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(8, 4.8))
        draw_entrants(axes, experiment)
        draw_limit(axes, experiment, rates)
        axes.set(xscale="log", yscale="log", xlabel="size of the gradient", ylabel="best time, us",
                 title=experiment["title"])
        axes.set_xticks(sizes, [size_text(size) for size in sizes], rotation=45, ha="right")
        axes.minorticks_off()
        axes.grid(True, color="#dddddd", linewidth=0.6)
        axes.legend(frameon=False, fontsize=9, loc="upper left")
        figure.tight_layout()
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
        plt.close(figure)
    return True

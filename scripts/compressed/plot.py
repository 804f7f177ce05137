"""Time against link speed, both logarithmic, one line a codec.

SVG with text as text, and nothing in it that changes from run to run but the figures.
"""

from __future__ import annotations

import pathlib
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402 - the backend is chosen first
from bench.plot import STYLE  # noqa: E402

from compressed.cases import DENSE, Case  # noqa: E402
from compressed.report import Results, codecs_of, links_of, time_ms  # noqa: E402

TIMES_MS = (25, 50, 100, 200, 400, 800)
LABEL_GAP = 1.09  # between labels at the right edge, as a factor


def lines_of(results: Results) -> dict[str, list[tuple[float, float]]]:
    """Points of each codec."""
    found: dict[str, list[tuple[float, float]]] = {}
    for codec in codecs_of(results, "links"):
        times = [(gbit, time_ms(results, Case("links", codec, gbit))) for gbit in links_of(results)]
        found[codec] = [(gbit, time) for gbit, time in times if time is not None]
    return found


def label_heights(ends: dict[str, float]) -> dict[str, float]:
    """Where labels go so that none lies on another, lowest first."""
    heights: dict[str, float] = {}
    last = 0.0
    for codec, end in sorted(ends.items(), key=lambda item: item[1]):
        last = max(end, last * LABEL_GAP)
        heights[codec] = last
    return heights


def draw(results: Results, path: pathlib.Path) -> None:
    """Writes the picture."""
    lines = lines_of(results)
    style: Any = STYLE
    with plt.rc_context(style):
        figure, axes = plt.subplots(figsize=(8.6, 5.6))
        colours = plt.get_cmap("tab20").colors  # type: ignore[attr-defined]
        for colour, (codec, points) in zip(colours, lines.items()):
            dense = codec == DENSE
            axes.plot(*zip(*points), marker="o", markersize=4, linewidth=2.4 if dense else 1.4,
                      color="black" if dense else colour)  # fmt: skip
        heights = label_heights({codec: points[-1][1] for codec, points in lines.items()})
        edge = links_of(results)[-1]
        for colour, codec in zip(colours, lines):
            axes.annotate("dense" if codec == DENSE else codec, (edge * 1.06, heights[codec]), va="center",
                          fontsize=9, color="black" if codec == DENSE else colour,
                          annotation_clip=False)  # fmt: skip
        axes.set(xscale="log", yscale="log", xlabel="link, Gbit/s", ylabel="exchange of 97.5 MiB, ms")
        ticks = links_of(results)
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_yticks(TIMES_MS, [str(time) for time in TIMES_MS])
        axes.minorticks_off()
        axes.grid(True, color="#dddddd", linewidth=0.6)
        figure.subplots_adjust(left=0.09, right=0.82, top=0.97, bottom=0.1)
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
        plt.close(figure)

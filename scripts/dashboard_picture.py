#!/usr/bin/env python3
"""Draws the Grafana dashboard of deploy/grafana with the data of a Prometheus, for the documentation.

    scripts/dashboard_picture.py http://127.0.0.1:9090 dashboard.png [--seconds 300]

Grafana itself is no package of Debian. Panels, their places, titles and queries come from gradbus.json;
only the drawing is not Grafana's. Needs matplotlib.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
import time
import urllib.parse
import urllib.request

DASHBOARD = pathlib.Path(__file__).resolve().parents[1] / "deploy/grafana/gradbus.json"
COLUMNS, UNIT = 24, 0.27  # of Grafana's grid; inches of one row
COLOURS = ("#7eb26d", "#eab839", "#6ed0e0", "#ef843c", "#e24d42", "#1f78c1", "#ba43a9", "#705da0")
SCALES = {"Bps": " B/s", "bytes": " B", "s": " s", "ops": "/s"}


def panels() -> list[dict]:
    """All panels, rows among them."""
    return json.loads(DASHBOARD.read_text())["panels"]


def with_all(query: str) -> str:
    """The query when "All" is chosen for each variable."""
    return re.sub(r"\$\{?\w+\}?", ".*", query)


def queries() -> list[str]:
    """Of all panels."""
    return [with_all(target["expr"]) for panel in panels() for target in panel.get("targets", [])]


def ask(prometheus: str, query: str, seconds: float) -> list[dict]:
    """Series over the last seconds."""
    now = time.time()
    words = urllib.parse.urlencode({"query": query, "start": now - seconds, "end": now, "step": max(1, seconds / 120)})
    with urllib.request.urlopen(f"{prometheus}/api/v1/query_range?{words}", timeout=30) as answer:
        return json.load(answer)["data"]["result"]


def name_of(series: dict, target: dict) -> str:
    """The legend."""
    labels = {name: text for name, text in series["metric"].items() if name != "__name__"}
    wanted = target.get("legendFormat", "")
    if wanted and wanted != "__auto":
        return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda found: labels.get(found[1], ""), wanted)
    return ", ".join(labels.values())


def figure(value: float, unit: str) -> str:
    """Short text of a number."""
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    if unit == "s" and 0 < abs(value) < 1:
        return f"{1000 * value:.3g} ms"
    for size, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g} {prefix}{SCALES.get(unit, '').strip()}"
    return f"{value:.6g}{SCALES.get(unit, '')}"


def draw_panel(axes, panel: dict, found: list[tuple[str, list]]) -> None:
    """A number, or curves."""
    unit = panel["fieldConfig"]["defaults"].get("unit", "none")
    axes.set_title(panel["title"], fontsize=7.5, loc="left", color="#d8d9da")
    axes.set_facecolor("#181b1f")
    if panel["type"] == "stat":
        axes.axis("off")
        last = found[0][1][-1][1] if found else "no data"
        text = last if last == "no data" else figure(float(last), unit)
        axes.text(0.5, 0.3, text, fontsize=17, ha="center", va="center", color="#73bf69", transform=axes.transAxes)
        return
    for i, (name, values) in enumerate(found[:8]):
        axes.plot([at for at, _ in values], [float(value) for _, value in values], color=COLOURS[i], lw=1, label=name)
    axes.tick_params(labelsize=6, colors="#9fa7b3", length=2)
    axes.set_xticks([])
    axes.locator_params(axis="y", nbins=5)
    axes.yaxis.set_major_formatter(lambda value, _: figure(value, unit))
    axes.grid(axis="y", color="#2c3235", lw=0.5)
    for side in axes.spines.values():
        side.set_color("#2c3235")
    if found:
        axes.legend(fontsize=5, loc="upper left", frameon=False, labelcolor="#d8d9da", ncols=2)


def draw(prometheus: str, path: pathlib.Path, seconds: float) -> None:
    """Writes the picture."""
    import matplotlib  # queries() works without it

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels())
    picture = pyplot.figure(figsize=(13, rows * UNIT), facecolor="#111217")
    for panel in panels():
        place = panel["gridPos"]
        left, top = place["x"] / COLUMNS, 1 - place["y"] / rows
        if panel["type"] == "row":
            picture.text(left + 0.01, top - 0.8 / rows, panel["title"], fontsize=9, color="white", weight="bold")
            continue
        axes = picture.add_axes((left + 0.045, top - (place["h"] - 0.5) / rows, place["w"] / COLUMNS - 0.06,
                                 (place["h"] - 1.5) / rows))  # fmt: skip
        found = [(name_of(series, target), series["values"]) for target in panel["targets"]
                 for series in ask(prometheus, with_all(target["expr"]), seconds)]  # fmt: skip
        draw_panel(axes, panel, found)
    picture.savefig(path, dpi=110, facecolor=picture.get_facecolor())
    pyplot.close(picture)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Draws deploy/grafana/gradbus.json.")
    parser.add_argument("prometheus")
    parser.add_argument("picture", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=300)
    options = parser.parse_args()
    draw(options.prometheus, options.picture, options.seconds)

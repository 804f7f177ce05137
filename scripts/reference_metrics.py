"""The page of metrics: one row for each row of common/metrics/metric_table.cc."""

from __future__ import annotations

import pathlib
import re

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
TABLE = REPOSITORY / "common/metrics/metric_table.cc"
TYPES = {"kCounter": "counter", "kGauge": "gauge", "kDurations": "histogram", "kSteps": "histogram",
         "kDepths": "histogram"}  # fmt: skip
TEXT = r'"((?:[^"\\]|\\.)*)"'
ROW = re.compile(
    rf"MetricInfo\{{\s*Metric::k\w+,\s*{TEXT},\s*(k\w+),\s*{TEXT},\s*{TEXT},\s*((?:{TEXT}\s*)+)\}}", re.DOTALL)
GROUPS = {"all": "Every daemon", "agent, shard": "Agents and shards", "coordinator": "The coordinator"}


def metrics() -> list[dict[str, str]]:
    """The rows of the table: name, type, daemons, labels and help."""
    rows = []
    for name, kind, daemons, labels, texts, _ in ROW.findall(TABLE.read_text()):
        text = "".join(re.findall(TEXT, texts)).replace('\\"', '"')
        rows.append({"name": name, "type": TYPES[kind], "daemons": daemons, "labels": labels, "help": text})
    if len(rows) != TABLE.read_text().count("MetricInfo{"):
        raise SystemExit(f"{TABLE}: {len(rows)} rows were read, and there are others")
    return rows


def series_names() -> set[str]:
    """The names that a query may use: of a histogram, those of its parts."""
    names = set()
    for row in metrics():
        parts = ("_bucket", "_sum", "_count") if row["type"] == "histogram" else ("",)
        names |= {row["name"] + part for part in parts}
    return names


def metrics_page() -> str:
    """Metrics of the daemons."""
    text = ("# Metrics\n\nEach daemon serves these at `http://HOST:PORT/metrics` when it has `--metrics-listen`. "
            "[Monitor a cluster](../how-to/monitor-a-cluster.md) shows how to collect them. Names and labels are "
            "stable. Times are in seconds, sizes in bytes. The label is `job_name` because Prometheus itself uses "
            "`job`. At most 64 jobs of a daemon have a label; further ones share `other`. No label names a tensor.\n")
    for daemons, title in GROUPS.items():
        text += f"\n## {title}\n\n| name | type | labels | meaning |\n| --- | --- | --- | --- |\n"
        for row in metrics():
            if row["daemons"] == daemons:
                labels = f"`{row['labels']}`" if row["labels"] else ""
                text += f"| `{row['name']}` | {row['type']} | {labels} | {row['help']} |\n"
    return text

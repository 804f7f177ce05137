"""python -m modes: trains, measures and writes; scripts/modes.sh builds and starts it."""

from __future__ import annotations

import argparse
import datetime
import json
import pathlib
import sys
from typing import Any, Protocol

from modes import bounds, report
from modes.training import MODES, TASKS, Task, Training

KEPT = ("accuracy", "loss", "loss_nats_per_char", "seconds", "steps_per_s", "steps_per_s_of_ranks", "time",
        "time_p50", "cpu_s_per_gb", "shards_cpu_s_per_gb", "gb_per_s")  # fmt: skip


class Measurement(Protocol):
    """What has a command and, run, a result."""

    def command(self) -> str:
        """As one would type it."""
        ...

    def run(self) -> dict[str, Any]:
        """What it found."""
        ...


class Results:
    """JSON lines in a file: one of each measurement."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self._found: dict[str, dict[str, Any]] = {one["command"]: one for one in map(json.loads, lines)}

    def of(self, measurement: Measurement) -> dict[str, Any] | None:
        """None when it was not done."""
        return self._found.get(measurement.command())

    def get(self, measurement: Measurement) -> dict[str, Any]:
        """Does it now when it was not done."""
        known = self.of(measurement)
        if known is not None:
            return known
        result = measurement.run()
        kept = {"command": measurement.command(), **{name: result[name] for name in KEPT if name in result}}
        self._found[kept["command"]] = kept
        self._path.write_text("".join(json.dumps(one) + "\n" for one in self._found.values()))
        print(json.dumps(kept), file=sys.stderr, flush=True)
        return kept

    def best_rate(self, task: Task, mode: str) -> str | None:
        """The learning rate that trains best; None unless all were tried."""
        tried = {rate: self.of(Training(task, mode, rate, None)) for rate in task.rates}
        if not all(tried.values()):
            return None
        return task.best(task.rates, key=lambda rate: tried[rate][task.measure])


def main() -> int:
    """0 when the report is written."""
    names = [task.name for task in TASKS]
    parser = argparse.ArgumentParser(prog="scripts/modes.sh", description="Measures every sync mode.")
    parser.add_argument("--mode", choices=MODES, action="append", help="train only in this one (may be repeated)")
    parser.add_argument("--only", choices=[*names, "bounds"], action="append", help="do only this (may be repeated)")
    parser.add_argument("--again", action="store_true", help="forget what earlier runs have found")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("docs/benchmarks"),
                        help="folder to write into")
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    path = out / "modes-results.jsonl"
    if arguments.again:
        path.unlink(missing_ok=True)
    results = Results(path)
    wanted = arguments.only or [*names, "bounds"]
    for measurement in bounds.ALL if "bounds" in wanted else ():
        results.get(measurement)
    for task in (one for one in TASKS if one.name in wanted):
        for mode in arguments.mode or MODES:
            for rate in task.rates:
                results.get(Training(task, mode, rate, None))
            for condition in task.conditions:
                results.get(Training(task, mode, results.best_rate(task, mode) or task.rates[0], condition))
    command = " ".join(["scripts/modes.sh", *sys.argv[1:]])
    report.write(results.of, results.best_rate, out / "modes.md", command, datetime.date.today().isoformat())
    print(f"wrote {out / 'modes.md'}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())

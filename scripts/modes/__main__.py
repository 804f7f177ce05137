"""python -m modes: trains and writes; scripts/modes.sh builds and starts it."""

from __future__ import annotations

import argparse
import datetime
import json
import pathlib
import sys
from typing import Any

from modes import report
from modes.training import CONDITIONS, MODES, RATES, TEST_FOLD, VALIDATION_FOLD, Training

KEPT = ("accuracy", "loss", "seconds", "steps_per_s", "steps_per_s_of_ranks")


class Results:
    """JSON lines in a file: one of each training."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self._found: dict[str, dict[str, Any]] = {one["command"]: one for one in map(json.loads, lines)}

    def of(self, training: Training) -> dict[str, Any] | None:
        """None when it was not done."""
        return self._found.get(training.command())

    def get(self, training: Training) -> dict[str, Any]:
        """Does it now when it was not done."""
        known = self.of(training)
        if known is not None:
            return known
        result = training.run()
        kept = {"command": training.command(), **{name: result[name] for name in KEPT if name in result}}
        self._found[kept["command"]] = kept
        self._path.write_text("".join(json.dumps(one) + "\n" for one in self._found.values()))
        print(f"{kept['accuracy']:.4f}  {kept.get('steps_per_s', '')}  {kept['command']}", file=sys.stderr, flush=True)
        return kept


def main() -> int:
    """0 when the report is written."""
    parser = argparse.ArgumentParser(prog="scripts/modes.sh", description="Trains in every exchange mode.")
    parser.add_argument("--mode", choices=MODES, action="append", help="only this one (may be repeated)")
    parser.add_argument("--again", action="store_true", help="forget what earlier runs have found")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("docs"), help="folder to write into")
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    path = out / "modes-results.jsonl"
    if arguments.again:
        path.unlink(missing_ok=True)
    results = Results(path)
    for mode in arguments.mode or MODES:
        tried = {rate: results.get(Training(mode, rate, VALIDATION_FOLD, None))["accuracy"] for rate in RATES}
        rate = max(RATES, key=lambda one: tried[one])
        for condition in CONDITIONS:
            results.get(Training(mode, rate, TEST_FOLD, condition))
    best = {}
    for mode in MODES:
        tried = {rate: results.of(Training(mode, rate, VALIDATION_FOLD, None)) for rate in RATES}
        known = {rate: one["accuracy"] for rate, one in tried.items() if one}
        if len(known) == len(RATES):
            best[mode] = max(RATES, key=lambda one: known[one])
    command = " ".join(["scripts/modes.sh", *sys.argv[1:]])
    report.write(results.of, best, out / "MODES_BENCH.md", command, datetime.date.today().isoformat())
    print(f"wrote {out / 'MODES_BENCH.md'}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())

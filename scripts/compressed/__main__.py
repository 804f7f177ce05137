"""Runs every case once after another and writes results and report. See scripts/compressed.sh."""

from __future__ import annotations

import argparse
import datetime
import json
import pathlib
import sys
import tempfile

from bench import facts, process

from compressed import plot, report
from compressed.cases import Case, all_cases

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
DEADLINE_S = 300


def measure(case: Case) -> dict[str, float]:
    """Median and best time of one iteration, in milliseconds; raises RuntimeError with the reason."""
    with tempfile.NamedTemporaryFile(suffix=".json") as rows:
        command = [str(REPOSITORY / "build/release/bin/gradbus"), "bench", "all_reduce", *case.arguments,
                   "--json", rows.name]  # fmt: skip
        done = process.run(command, DEADLINE_S, {})
        if done.problem:
            raise RuntimeError(f"{case.key}: {done.problem}")
        row = json.loads(pathlib.Path(rows.name).read_text())[0]
    return {"ms": row["time_p50"] / 1000, "best_ms": row["time"] / 1000}


def run(quick: bool, stored: pathlib.Path) -> None:
    """All results, with what they depend on; stored after each."""
    found: dict[str, dict[str, float]] = {}
    results = {"date": datetime.date.today().isoformat(), "machine": facts.machine(), "cases": found}
    cases = all_cases(quick)
    for number, case in enumerate(cases, 1):
        found[case.key] = measure(case)
        stored.write_text(json.dumps(results, indent=1) + "\n")
        print(f"[{number}/{len(cases)}] {case.key}: {found[case.key]['ms']:.0f} ms", file=sys.stderr)


def main() -> None:
    """As scripts/compressed.sh says."""
    parser = argparse.ArgumentParser(prog="scripts/compressed.sh")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--report", action="store_true", help="from the last results")
    parser.add_argument("--out", type=pathlib.Path, default=REPOSITORY / "docs/benchmarks")
    options = parser.parse_args()
    folder = options.out / "compression"
    folder.mkdir(parents=True, exist_ok=True)
    stored = folder / "results.json"
    if not options.report:
        process.become_reaper()
        process.interrupt_on_terminate()
        run(options.quick, stored)
    results = json.loads(stored.read_text())
    plot.draw(results, folder / "links.svg")
    (options.out / "compression.md").write_text(report.page(results))


main()

#!/usr/bin/env python3
"""Measures training steps of frameworks on Gradbus beside their own exchange, in turn, and writes a table.

    scripts/frameworks_speed.py [--rounds 3] [--only CASE...]

Needs a release build, .venv and .venv-frameworks (scripts/setup.sh --frameworks); root for the cases with a link.
Leave the machine alone meanwhile. PyTorch's cases take both by turns in the same processes. The others run two programs
in each round. A ratio is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
from typing import NamedTuple

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
BIN = pathlib.Path(os.environ.get("GRADBUS_BIN", REPOSITORY / "build/release/bin"))
TORCH = str(REPOSITORY / ".venv/bin/python")
OTHERS = str(REPOSITORY / ".venv-frameworks/bin/python3")
DEADLINE_S = 240
LINK = ("--agents", "2", "--link", "1gbit")
TURNS = "scripts/frameworks/torch_turns.py"


class Case(NamedTuple):
    """One row of the table. Without ``ours`` and ``theirs``, the options that differ, the program measures both."""

    name: str
    text: str
    python: str
    program: tuple[str, ...]
    goal: float
    run: tuple[str, ...] = ()
    ours: tuple[str, ...] = ()
    theirs: tuple[str, ...] = ()


def others(name: str, text: str, file: str, peer: str) -> Case:
    """A case of another framework."""
    return Case(name, text, OTHERS, (f"scripts/frameworks/{file}",), 1.2, (), ("--backend", "gradbus"),
                ("--backend", peer))  # fmt: skip


CASES = [
    Case("mlp", "DDP, MLP of 25.6 M parameters, one machine", TORCH, (TURNS, "--model", "mlp"), 1.2),
    Case("charlm", "DDP, transformer of 1 M parameters, one machine", TORCH, (TURNS, "--model", "charlm"), 1.2),
    Case("mlp-link", "DDP, MLP, 1 Gbit/s", TORCH, (TURNS, "--model", "mlp", "--rounds", "8"), 1.0, LINK),
    Case("hook-link", 'DDP, MLP, 1 Gbit/s, hook("efsignsgd")', TORCH,
         (TURNS, "--model", "mlp", "--rounds", "8", "--hook", "efsignsgd"), 7.0, LINK),
    Case("fsdp", "FSDP2, MLP, one machine", TORCH, (TURNS, "--model", "mlp", "--fsdp"), 1.0),
    others("jax", "JAX, MLP of 4.3 M parameters, one machine", "jax_steps.py", "gloo"),
    others("tensorflow", "TensorFlow, MLP of 4.3 M parameters, one machine", "tensorflow_steps.py", "strategy"),
]  # fmt: skip


class Result(NamedTuple):
    """Of a case: medians in ms, the share of communication in the peer's step, and the peer's time to ours."""

    case: str
    ours: float
    theirs: float
    share: float
    ratio: float
    date: str


def measure(case: Case, options: tuple[str, ...] = ()) -> dict[str, float]:
    """One run of two ranks; the JSON line of rank 0."""
    launcher = [str(BIN / "gradbus"), "run", "-np", "2", "--no-prefix", *case.run, "--"]
    command = [*launcher, case.python, *case.program, *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, text=True, capture_output=True, check=False,
                          timeout=DEADLINE_S)  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not lines:
        sys.exit(f"frameworks_speed.py: {' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return dict(json.loads(lines[-1]))


def two_programs(case: Case, rounds: int) -> tuple[float, float, float, float]:
    """Ours, theirs, share and ratio of programs that run one after the other."""
    ours, theirs = [], []
    for number in range(rounds):
        pair = [(ours, case.ours), (theirs, case.theirs)]
        for found, options in pair if number % 2 == 0 else reversed(pair):
            found.append(measure(case, options))
    median = lambda found, field: statistics.median(one[field] for one in found)  # noqa: E731
    ratio = statistics.median(b["step_ms_median"] / a["step_ms_median"] for a, b in zip(ours, theirs))
    shown = median(ours, "step_ms_median"), median(theirs, "step_ms_median"), median(theirs, "communication_share")
    return *shown, ratio


def run(case: Case, rounds: int) -> Result:
    """The whole case."""
    if case.ours:
        found = two_programs(case, rounds)
    else:
        report = measure(case)
        found = report["ours_ms"], report["theirs_ms"], report["communication_share"], report["ratio"]
    return Result(case.name, *found, str(datetime.date.today()))


def row_of(result: Result) -> str:
    """Of the table."""
    case = next(case for case in CASES if case.name == result.case)
    met = "met" if result.ratio >= case.goal else "missed"
    return (f"| {case.text} | {result.ours:.1f} ms | {result.theirs:.1f} ms | {result.share:.0%} "
            f"| {result.ratio:.2f}x | {case.goal}x | {met} |")  # fmt: skip


def processor() -> str:
    """Its name."""
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.machine()


def table(results: list[Result]) -> str:
    """The part of the page that is measured."""
    dates = " and ".join(sorted({result.date for result in results}))
    head = (f"Measured {dates} with two ranks on {os.cpu_count()} cores ({processor()}), by turns. "
            "Written by `scripts/frameworks_speed.py`.\n")  # fmt: skip
    columns = "| case | step with Gradbus | step with the peer | of it communication | ratio | goal | |"
    return "\n".join([head, columns, "| --- |" + " --- |" * 6, *map(row_of, results)]) + "\n"


def write(page: pathlib.Path, text: str) -> None:
    """Replaces what is between the two marks of the page."""
    begin, end = "<!-- measured -->\n", "<!-- end of measured -->\n"
    before, _, rest = page.read_text().partition(begin)
    after = rest.partition(end)[2]
    page.write_text(before + begin + text + end + after)


def known(file: pathlib.Path) -> dict[str, Result]:
    """What was measured before."""
    lines = file.read_text().splitlines() if file.exists() else []
    return {result.case: result for result in (Result(**json.loads(line)) for line in lines)}


def main() -> None:
    """All cases, or those that are named; the page has what was measured before for the others."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="of cases that are two programs")
    parser.add_argument("--only", nargs="*", metavar="CASE", choices=[case.name for case in CASES])
    parser.add_argument("--out", type=pathlib.Path, default=REPOSITORY / "docs/benchmarks", help="a folder")
    arguments = parser.parse_args()
    file = arguments.out / "frameworks-results.jsonl"
    results = known(file)
    for case in CASES:
        if arguments.only is None or case.name in arguments.only:
            results[case.name] = run(case, arguments.rounds)
            print(row_of(results[case.name]), flush=True)
            ordered = [results[case.name] for case in CASES if case.name in results]
            file.write_text("".join(json.dumps(result._asdict()) + "\n" for result in ordered))
            write(arguments.out / "frameworks.md", table(ordered))


if __name__ == "__main__":
    main()

"""python -m accuracy: trains and writes; scripts/accuracy.sh builds and starts it."""

from __future__ import annotations

import argparse
import pathlib
import sys

from accuracy import report
from accuracy.results import Results
from accuracy.rows import DENSE, TASKS, Row, Task, rows
from accuracy.training import Training, run

FIRST_SEED = 1
QUICK = ("topk 1 %", "dgc 0.1 %", "qsgd", "onebit", "efsignsgd", "powersgd")


def parse_arguments() -> argparse.Namespace:
    """The options; scripts/accuracy.sh passes them on."""
    parser = argparse.ArgumentParser(prog="scripts/accuracy.sh", description="Trains with every compression.")
    parser.add_argument("--quick", action="store_true", help="digits with six compressions, one seed")
    parser.add_argument("--task", choices=TASKS, action="append", help="only this one (may be repeated)")
    parser.add_argument("--seeds", type=int, default=5, help="at most so many of each task")
    parser.add_argument("--again", action="store_true", help="forget what earlier runs have found")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("docs/benchmarks"),
                        help="folder to write into")
    arguments = parser.parse_args()
    if arguments.seeds < 1:
        parser.error("--seeds must be at least 1")
    return arguments


def chosen_rows(task: Task, quick: bool) -> list[Row]:
    """All of them, or what --quick has."""
    return [row for row in rows(task) if not quick or row.name in (DENSE, *QUICK)]


def missing(results: Results, tasks: list[Task], seeds: list[int], quick: bool) -> list[Training]:
    """Trainings that are still to do, a seed at a time, so that an early end leaves a table without holes."""
    every = [(index, row.urgency, Training(task, row, seed)) for task in tasks for row in chosen_rows(task, quick)
             for index, seed in enumerate(seeds[: task.seeds])]  # fmt: skip
    ordered = sorted(every, key=lambda one: one[:2])  # stable: tasks and rows stay in order
    return [training for _, _, training in ordered if results.of(training) is None]


def main() -> int:
    """0 when the report is written."""
    arguments = parse_arguments()
    tasks = [TASKS["digits"]] if arguments.quick else [TASKS[name] for name in arguments.task or TASKS]
    seeds = list(range(FIRST_SEED, FIRST_SEED + (1 if arguments.quick else arguments.seeds)))
    path = arguments.out.resolve() / "accuracy-results.jsonl"
    if arguments.again:
        path.unlink(missing_ok=True)
    results = Results(path)
    todo = missing(results, tasks, seeds, arguments.quick)
    print(f"{len(todo)} trainings", file=sys.stderr)
    for training, result in run(todo) if todo else ():
        results.add(training, result)
        name = f"{training.task.name:7} seed {training.seed}  {training.row.name:24}"
        print(f"{name} {result[training.task.metric]:.4f}  {result['seconds']:.0f} s", file=sys.stderr, flush=True)
    words = " ".join(["scripts/accuracy.sh", *sys.argv[1:]])
    print(f"wrote {report.write(results, tasks, seeds, arguments.out.resolve(), words)}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())

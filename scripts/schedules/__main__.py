"""Runs every job and writes results and page. See scripts/schedules.sh."""

from __future__ import annotations

import argparse
import datetime
import json
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

from bench import facts, process
from gradbus._ops import codecs_in

from schedules import report
from schedules.cases import SCHEDULES, Job, grid, is_of_older_torch
from schedules.workloads import SMALL, WORKLOADS

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
GRADBUS = str(REPOSITORY / "build/release/bin/gradbus")
DEAR_BYTES = 4 << 20  # as in running jobs
DEADLINE_S = 1800
HOROVOD_VENV = REPOSITORY / "build/peers/horovod"  # scripts/bench/peers.sh
OLDER_TORCH = str(REPOSITORY / ".venv-debian/bin/python")  # that of Horovod; scripts/setup.sh
RANKS = {"PYTHONPATH": str(REPOSITORY / "scripts")}


def measure(job: Job, rounds: int, steps: int) -> dict[str, Any]:
    """What rank 0 prints, with the arms; raises RuntimeError with the reason."""
    arms = [[who, schedule, None if codec == "none" else codec, size] for who, schedule, codec, size in job.arms]
    with tempfile.TemporaryDirectory() as folder:
        recording = f"{folder}/job.json"
        variables = {**RANKS, "GRADBUS_RECORD": recording}
        words = command_of(job, arms, rounds, steps, f"{folder}/store")
        found = json_of(process.run(words, DEADLINE_S, variables), job.key)
        predicted = predictions(recording)
    return {"job": {**vars(job)}, "predicted_us": predicted, **found}


def add_horovod(found: dict[str, Any], job: Job, rounds: int, steps: int, venv: pathlib.Path) -> None:
    """More rows, in place of older ones: Horovod in a launch of its own, because it needs an older PyTorch. Then
    Gradbus in another one, with the same PyTorch."""
    rows = [row for row in zip(found["job"]["arms"], found["arms"]) if not is_of_older_torch(row[0][0])]
    variables = {**RANKS, "HOROVOD_CYCLE_TIME": "0.1"}
    with tempfile.TemporaryDirectory() as folder:
        lab = [str(venv / "bin/python"), str(REPOSITORY / "scripts/bench/horovod_in_lab.py"), f"{folder}/meeting"]
        rank = [str(venv / "bin/python"), "-m", "schedules.horovod_rank", job.model]
        words = [*launch(job), *lab, *rank, str(job.batch_size), str(rounds), str(steps)]
        measured = json_of(process.run(words, DEADLINE_S, variables), f"{job.key}, Horovod", '{"compute"')
        alone = measured["compute"]
        for codec in ("none", "fp16"):
            rows.append((["horovod", "", codec, None], {"seconds": measured[codec], "alone": alone}))
        ours = [["compute", "", None, None], *(["gradbus", "auto", codec, None] for codec in (None, "fp16"))]
        words = command_of(job, ours, rounds, steps, f"{folder}/store", OLDER_TORCH)
        compute, *others = json_of(process.run(words, DEADLINE_S, RANKS), f"{job.key}, older PyTorch")["arms"]
    for (_, schedule, codec, size), result in zip(ours[1:], others):
        rows.append((["gradbus-older", schedule, codec or "none", size], {**result, "alone": compute["seconds"]}))
    found["job"]["arms"], found["arms"] = [arm for arm, _ in rows], [result for _, result in rows]


def json_of(done: process.Outcome, what: str, begin: str = '{"bytes"') -> Any:
    """What a rank has printed; raises RuntimeError with the reason."""
    if done.problem:
        raise RuntimeError(f"{what}: {done.problem}")
    return json.loads(next(line for line in done.output.splitlines() if line.startswith(begin)))


def predictions(recording: str) -> dict[str, float]:
    """Microseconds of a step, by schedule: from what the job has recorded, its network included."""
    command = [GRADBUS, "plan", "--replay", recording, "--dear-bytes", str(DEAR_BYTES), "--json"]
    report = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout)
    return {row["schedule"]: row["iteration_us"] for row in report["schedules"] if "iteration_us" in row}


def launch(job: Job) -> list[str]:
    """Each rank on an agent of its own."""
    ranks = str(job.ranks)
    return [GRADBUS, "run", "-np", ranks, "--agents", ranks, "--link", job.link, "--no-prefix", "--"]


def command_of(job: Job, arms: list[Any], rounds: int, steps: int, store: str,
               python: str = sys.executable) -> list[str]:  # fmt: skip
    """Of one launch."""
    rank = [python, "-m", "schedules.rank", job.model]
    return [*launch(job), *rank, str(job.batch_size), json.dumps(arms), str(rounds), str(steps), store]


def words(text: str) -> list[str]:
    """A list with commas."""
    return [word for word in text.split(",") if word]


def codecs(text: str) -> list[str]:
    """A list in which each codec may have options."""
    return codecs_in(text)


def is_same(of: dict[str, Any], job: Job) -> bool:
    """Of an earlier run: the same model and cluster."""
    return (of["model"], of["batch_size"], of["ranks"], of["link"]) == (job.model, job.batch_size, job.ranks, job.link)


def main() -> None:
    """As scripts/schedules.sh says."""
    parser = argparse.ArgumentParser(prog="scripts/schedules.sh")
    parser.add_argument("--model", type=words, default=list(SMALL), help=f"of {', '.join(WORKLOADS)}")
    parser.add_argument("--batch-size", type=int, help="of each rank; default: that of the model")
    parser.add_argument("--ranks", type=int, default=2, help="each on an agent of its own")
    parser.add_argument("--link", type=words, default=["500mbit", "1gbit"])
    parser.add_argument("--schedule", type=words, default=list(SCHEDULES))
    parser.add_argument("--compression", type=codecs, default=["none"], help="none,fp16,topk:ratio=0.01,ef=none,auto")
    parser.add_argument("--coded", type=words, help="the schedules that are measured with codecs; default: all")
    parser.add_argument("--horovod", action="store_true", help="measure Horovod, too: scripts/schedules.sh builds it")
    parser.add_argument("--horovod-venv", type=pathlib.Path, help="measure this Horovod, and build none")
    parser.add_argument("--horovod-only", action="store_true", help="only its rows of the last results, once more")
    parser.add_argument("--groups", type=int, help="so many buckets; default: the schedule's own size")
    parser.add_argument("--rounds", type=int, default=4, help="turns of each arm")
    parser.add_argument("--steps", type=int, default=5, help="of a turn, after three that do not count")
    parser.add_argument("--add", action="store_true", help="keep the other jobs of the last results")
    parser.add_argument("--report", action="store_true", help="from the last results")
    parser.add_argument("--out", type=pathlib.Path, default=REPOSITORY / "docs/benchmarks")
    options = parser.parse_args()
    folder = options.out / "schedules"
    folder.mkdir(parents=True, exist_ok=True)
    stored = folder / "results.json"
    if not options.report:
        process.become_reaper()
        process.interrupt_on_terminate()
        jobs = grid(options.model, options.batch_size, options.ranks, options.link, options.schedule,
                    options.compression, options.groups, options.coded)  # fmt: skip
        turns = {"date": datetime.date.today().isoformat(), "rounds": options.rounds, "steps": options.steps,
                 "machine": facts.machine()}  # fmt: skip
        results: dict[str, Any] = {**turns, "jobs": []}
        if options.add or options.horovod_only:
            results = json.loads(stored.read_text())
        for number, job in enumerate(jobs, 1):
            older = next((one for one in results["jobs"] if is_same(one["job"], job) and "part" not in one), None)
            if options.horovod_only and older is None:
                sys.exit(f"{job.key}: the last results have no such job | next: measure it with --add")
            found = older if options.horovod_only and older else measure(job, options.rounds, options.steps)
            if options.horovod or options.horovod_venv:
                venv = options.horovod_venv or HOROVOD_VENV
                add_horovod(found, job, options.rounds, options.steps, venv.absolute())
            if options.add:
                found |= turns
            results["jobs"] = [one for one in results["jobs"] if one is not older] + [found]
            stored.write_text(json.dumps(results) + "\n")
            print(f"[{number}/{len(jobs)}] {job.key}", file=sys.stderr)
            print(report.table_of(found), file=sys.stderr)
    (options.out / "schedules.md").write_text(report.page(json.loads(stored.read_text())))


main()

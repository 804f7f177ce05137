"""Runs the experiments in rounds: every entrant takes its turn in every round, until the time is used.

A round of an experiment is begun only when it fits in what is left, judged by its round before; the first
round of everything comes before the second of anything. What cannot run is a note beside the entrant, not
an end of the run.
"""

from __future__ import annotations

import json
import pathlib
import sys
import tempfile
import time

from bench import entrants, process, results
from bench.entrants import Command, Entrant
from bench.experiments import Experiment
from bench.results import Entry


class Clock:
    """What is left of the time for the whole run."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds; 0 when it is over."""
        return max(0.0, self._end - time.monotonic())


def say(text: str) -> None:
    """Progress on stderr."""
    print(text, file=sys.stderr, flush=True)


def with_files(command: Command, folder: str) -> list[str]:
    """The words with real file names."""
    names = {entrants.JSON_FILE: f"{folder}/rows.json", entrants.STORE_FILE: f"{folder}/store"}
    return [names.get(word, word) for word in command.words]


def run_command(command: Command, clock: Clock) -> tuple[str, str]:
    """(text that holds the rows, what went wrong) of one command."""
    with tempfile.TemporaryDirectory(prefix="gradbus-bench-") as folder:
        # Launchers keep their own files in TMPDIR; whatever they leave goes with the folder.
        environment = {**dict(command.environment), "TMPDIR": folder}
        done = process.run(with_files(command, folder), min(command.deadline_s, clock.left()), environment)
        written = pathlib.Path(folder, "rows.json")
        text = written.read_text() if written.exists() else done.output
        return process.RANK_PREFIX.sub("", text), done.problem


def training_row(output: str) -> list[Entry]:
    """The JSON line of a training program as a row: step times in microseconds."""
    line = next((line for line in reversed(output.splitlines()) if line.strip().startswith("{")), "")
    if not line:
        raise ValueError("no JSON line")
    said = json.loads(line)
    median = float(said["step_ms_median"]) * 1e3
    return [{"time": median, "time_p50": median, "share": said.get("communication_share")}]


def cell_of(experiment: Experiment, command: Command, row: Entry) -> str:
    """What a row is the time of."""
    if experiment.kind == "sizes":
        return str(int(row["size"]))
    if experiment.kind == "forms":
        return str(row.get("form") or "arena")
    return command.cell


def check_size(experiment: Experiment, row: Entry) -> None:
    """Both sides must have exchanged the same."""
    size = int(row.get("size", 0))
    if experiment.size_expected and size != experiment.size_expected:
        raise ValueError(f"exchanged {size} bytes, not {experiment.size_expected}")


def keep_rows(experiment: Experiment, command: Command, text: str, kept: Entry) -> None:
    """Adds the rows of one command to the entrant's cells. Raises ValueError when there are none."""
    programs = experiment.kind == "programs"
    for row in training_row(text) if programs else results.parse_rows(text):
        check_size(experiment, row)
        cell = cell_of(experiment, command, row)
        results.add_row(kept, cell, row)
        if programs and row["share"] is not None:
            kept["cells"][cell].setdefault("share", []).append(row["share"])


def take_turn(experiment: Experiment, entrant: Entrant, kept: Entry, clock: Clock) -> None:
    """One entrant's commands of one round."""
    for command in entrant.commands:
        if clock.left() <= 0:
            return
        text, problem = run_command(command, clock)
        try:
            keep_rows(experiment, command, text, kept)
        except (ValueError, KeyError, TypeError) as error:
            problem = problem or f"its output is not understood: {error}"
        if problem and clock.left() > 0:
            results.add_problem(kept, problem, command.text())
            say(f"    {entrant.name}: {problem}")


class Campaign:
    """All experiments of a run and what they have measured so far."""

    def __init__(self, experiments: list[Experiment], clock: Clock) -> None:
        self._experiments = experiments
        self._clock = clock
        self._seconds: dict[str, float] = {}
        self.measured = [self._empty(experiment) for experiment in experiments]

    @staticmethod
    def _empty(experiment: Experiment) -> Entry:
        kept = [results.new_entrant(e.name, e.ours, [c.text() for c in e.commands]) for e in experiment.entrants]
        found = results.new_experiment(experiment.name, experiment.title, experiment.limit, kept)
        return {**found, "kind": experiment.kind, "size": experiment.size_expected, "rounds": 0}

    def run(self, rounds: int) -> None:
        """So many rounds, or as many as fit."""
        for number in range(1, rounds + 1):
            for experiment, kept in zip(self._experiments, self.measured):
                self._round(experiment, kept, number)

    def _round(self, experiment: Experiment, kept: Entry, number: int) -> None:
        if self._seconds.get(experiment.name, 0.0) > self._clock.left() or self._clock.left() <= 0:
            return
        began = time.monotonic()
        say(f"round {number}: {experiment.title}")
        # The order turns around each round, so nobody always runs right after the same neighbour.
        turns = list(zip(experiment.entrants, kept["entrants"]))
        for entrant, cells in turns if number % 2 else turns[::-1]:
            take_turn(experiment, entrant, cells, self._clock)
        kept["rounds"] = number
        self._seconds[experiment.name] = time.monotonic() - began

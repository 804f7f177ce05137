"""One training of an example in one mode under one condition."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any, NamedTuple

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BINARIES = pathlib.Path(os.environ.get("GRADBUS_BIN", REPOSITORY / "build/release/bin"))
RANKS, SHARDS = 4, 2
DEADLINE_S = 300
LAUNCHER_PREFIXES = ("GRADBUS_", "OMPI_", "PMI_", "SLURM_", "TORCHELASTIC_")

MODES = (
    "sync", "delayed:k=1", "delayed:k=4", "delayed:k=4,dc=0.04", "averaging:every=10", "gossip",
    "gossip:topology=ring", "localsgd:H=8", "diloco:H=20,outer_momentum=0.5", "ps:sync", "ps:async",
    "ps:ssp,max_staleness=4", "ps:quorum,q=2",
)  # fmt: skip


class Condition(NamedTuple):
    """How unequal ranks are: seconds of a rank's own step, over those of the others."""

    name: str
    slow: float = 1.0  # the last rank's steps, all of them
    stalls: tuple[float, float] = (0.0, 1.0)  # of every rank's steps, this share, this much longer
    ranks: int = RANKS

    def words(self) -> list[str]:
        """The program's options."""
        slow = ["--slow", f"{self.slow:g}"] if self.slow > 1 else []
        return [*slow, "--stalls", "{:g}:{:g}".format(*self.stalls)] if self.stalls[0] > 0 else slow


EQUAL, TWICE = Condition("equal ranks"), Condition("one 2x slower", slow=2)
TWO_RANKS = Condition("of 2 ranks one 4x slower", slow=4, ranks=2)
FOUR_TIMES, STALLS = Condition("one 4x slower", slow=4), Condition("10 % of steps 5x longer", stalls=(0.1, 5))


class Task(NamedTuple):
    """What is trained, and what says how well."""

    name: str
    words: tuple[str, ...]
    rates: tuple[str, ...]  # every mode gets the one of these that trains best on what validate holds out
    validate: tuple[str, ...]
    test: tuple[str, ...]
    pace_ms: int
    conditions: tuple[Condition, ...]
    measure: str  # of the program's JSON line
    best: Any  # max or min

    @property
    def program(self) -> str:
        """Its path in the repository."""
        return f"examples/{self.name}/train.py"


TASKS = (
    Task("digits", (), ("0.2", "0.05", "0.01"), ("--fold", "1"), ("--fold", "0"), 10,
         (EQUAL, TWICE, FOUR_TIMES, TWO_RANKS, STALLS), "accuracy", max),
    Task("charlm", ("--steps", "300", "--width", "64", "--layers", "2", "--context", "32", "--sample", "0"),
         ("8e-3", "3e-3", "1e-3"), ("--validate",), (), 30, (EQUAL, TWICE, STALLS), "loss_nats_per_char", min),
)  # fmt: skip


def run_gradbus(words: list[str], variables: dict[str, str] | None = None) -> str:
    """What it prints. Raises RuntimeError with what it printed when it fails."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHER_PREFIXES)}
    done = subprocess.run([str(BINARIES / "gradbus"), *words], cwd=REPOSITORY,
                          env={**kept, "OMP_NUM_THREADS": "1", **(variables or {})}, text=True,
                          capture_output=True, timeout=DEADLINE_S, check=False)  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"gradbus {' '.join(words)}\n{done.stderr[-4000:]}")
    return done.stdout


def run_program(words: list[str]) -> dict[str, Any]:
    """The JSON object that an example prints last."""
    return json.loads(run_gradbus(words).splitlines()[-1])


class Training(NamedTuple):
    """What is to be done."""

    task: Task
    mode: str
    rate: str
    condition: Condition | None  # None: as fast as it goes, tested on what is held out to choose the rate

    def words(self) -> list[str]:
        """The program's options."""
        chosen = [*self.task.words, "--lr", self.rate]
        if self.condition is None:
            return [*chosen, *self.task.validate]
        return [*chosen, *self.task.test, "--pace", str(self.task.pace_ms), *self.condition.words()]

    @property
    def ranks(self) -> int:
        """And agents."""
        return RANKS if self.condition is None else self.condition.ranks

    def command(self) -> str:
        """As one would type it."""
        return (f"gradbus run -np {self.ranks} --agents {self.ranks} --shards {SHARDS} --mode {self.mode} -- python "
                f"{self.task.program} {' '.join(self.words())}")  # fmt: skip

    def run(self) -> dict[str, Any]:
        """Its JSON line."""
        ranks = str(self.ranks)
        return run_program(["run", "-np", ranks, "--agents", ranks, "--shards", str(SHARDS), "--no-prefix", "--mode",
                            self.mode, "--", sys.executable, self.task.program, *self.words()])  # fmt: skip

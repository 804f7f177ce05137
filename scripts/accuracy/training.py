"""Runs trainings: one `gradbus run` with four ranks on four agents, and a JSON line from each training."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

from accuracy.rows import RANKS, Row, Task

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
RANK = pathlib.Path(__file__).parent / "rank.py"
LAUNCHER_PREFIXES = ("GRADBUS_", "OMPI_", "PMI_", "SLURM_", "TORCHELASTIC_")
FOLDS = 5
ERROR_LINES_MAX = 80


class Training(NamedTuple):
    """A row of a task, from one seed."""

    task: Task
    row: Row
    seed: int

    def words(self) -> list[str]:
        """The program's options. Another fifth of the digits is held out with each seed: five seeds test all."""
        fold = ["--fold", str(self.seed % FOLDS)] if self.task.program.startswith("examples/digits") else []
        return [*self.task.options, *self.row.options, "--seed", str(self.seed), *fold]

    def command(self) -> str:
        """The same as one would type it."""
        compression = f"--compression {self.row.spec} " if self.row.spec else ""
        return (f"gradbus run -np {RANKS} --agents {RANKS} {compression}-- python {self.task.program} "
                f"{' '.join(self.words())}")  # fmt: skip


# The folder of the programs; GRADBUS_BIN chooses another.
BINARIES = pathlib.Path(os.environ.get("GRADBUS_BIN", REPOSITORY / "build/release/bin"))


def environment() -> dict[str, str]:
    """Without another launcher's variables, with our programs first, and one thread a rank."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHER_PREFIXES)}
    return {**kept, "OMP_NUM_THREADS": "1", "PATH": f"{BINARIES}:{os.environ['PATH']}"}


def plan(trainings: list[Training]) -> list[dict[str, Any]]:
    """What rank.py reads."""
    return [{"program": one.task.program, "words": [*one.words(), "--traffic"], "compression": one.row.spec or "none"}
            for one in trainings]  # fmt: skip


def run(trainings: list[Training], python: str = sys.executable) -> Iterator[tuple[Training, dict[str, Any]]]:
    """Each training with its result, as soon as it is done. Raises RuntimeError when ranks fail."""
    with tempfile.TemporaryDirectory(prefix="gradbus-accuracy-") as folder:
        path, errors = pathlib.Path(folder) / "plan.json", pathlib.Path(folder) / "errors"
        path.write_text(json.dumps(plan(trainings)))
        words = [str(BINARIES / "gradbus"), "run", "-np", str(RANKS), "--agents", str(RANKS), "--no-prefix", "--",
                 python, str(RANK), str(path)]  # fmt: skip
        with errors.open("w") as log, subprocess.Popen(
            words, cwd=REPOSITORY, env=environment(), text=True, stdout=subprocess.PIPE, stderr=log
        ) as process:
            try:
                yield from zip(trainings, map(json.loads, process.stdout or ()))
            except BaseException:  # whoever asked has stopped asking
                process.terminate()
                raise
        if process.returncode != 0:
            raise RuntimeError("\n".join(errors.read_text().splitlines()[-ERROR_LINES_MAX:]))

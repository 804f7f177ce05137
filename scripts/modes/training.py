"""One training of examples/digits in one mode under one condition."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any, NamedTuple

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BINARIES = pathlib.Path(os.environ.get("GRADBUS_BIN", REPOSITORY / "build/release/bin"))
PROGRAM = "examples/digits/train.py"
RANKS, SHARDS = 4, 2
PACE_MS = 10
DEADLINE_S = 300
LAUNCHER_PREFIXES = ("GRADBUS_", "OMPI_", "PMI_", "SLURM_", "TORCHELASTIC_")
# Every mode gets the rate of these that trains best when another fifth of the images is held out.
RATES = ("0.2", "0.05", "0.01")
VALIDATION_FOLD, TEST_FOLD = 1, 0

MODES = (
    "sync", "delayed:k=1", "delayed:k=4", "delayed:k=4,dc=0.04", "averaging:every=10", "gossip",
    "gossip:topology=ring", "localsgd:H=8", "diloco:H=20,outer_momentum=0.5", "ps:sync", "ps:async",
    "ps:ssp,max_staleness=4", "ps:quorum,q=2",
)  # fmt: skip


class Condition(NamedTuple):
    """How unequal ranks are."""

    name: str
    options: tuple[str, ...]


CONDITIONS = (
    Condition("equal ranks", ()),
    Condition("one 2x slower", ("--slow", "2")),
    Condition("one 4x slower", ("--slow", "4")),
    Condition("10 % of steps 5x longer", ("--stalls", "0.1:5")),
)


class Training(NamedTuple):
    """What is to be done."""

    mode: str
    rate: str
    fold: int
    condition: Condition | None  # None: as fast as it goes

    def words(self) -> list[str]:
        """The program's options."""
        pace = [] if self.condition is None else ["--pace", str(PACE_MS), *self.condition.options]
        return ["--lr", self.rate, "--fold", str(self.fold), *pace]

    def command(self) -> str:
        """As one would type it."""
        return (f"gradbus run -np {RANKS} --agents {RANKS} --shards {SHARDS} --mode {self.mode} -- python {PROGRAM} "
                f"{' '.join(self.words())}")  # fmt: skip

    def run(self) -> dict[str, Any]:
        """Its JSON line. Raises RuntimeError with what it printed when it fails."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHER_PREFIXES)}
        words = [str(BINARIES / "gradbus"), "run", "-np", str(RANKS), "--agents", str(RANKS), "--shards", str(SHARDS),
                 "--no-prefix", "--mode", self.mode, "--", sys.executable, PROGRAM, *self.words()]  # fmt: skip
        done = subprocess.run(words, cwd=REPOSITORY, env={**kept, "OMP_NUM_THREADS": "1"}, text=True,
                              capture_output=True, timeout=DEADLINE_S, check=False)  # fmt: skip
        if done.returncode != 0:
            raise RuntimeError(f"{self.command()}\n{done.stderr[-4000:]}")
        return json.loads(done.stdout.splitlines()[-1])

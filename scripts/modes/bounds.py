"""What the modes reach of what a network or a machine allows."""

from __future__ import annotations

import json
import pathlib
import sys
import tempfile
from typing import Any, NamedTuple

from modes import copies
from modes.training import run_gradbus, run_program

LINK, LINK_BYTES_PER_S = "1gbit", 1e9 / 8
SERVED = ((2, 1), (2, 2), (3, 1), (3, 2), (3, 3))  # nodes, shards
SERVED_MIB = 64
PLACED_MIB = 32
LOCAL_MIB = 64
LOCAL = (("sync", ""), ("ps:sync", ""), ("ps:sync,replicas=2", ""), ("ps:async,lr=0.1,replicas=1", ""),
         ("ps:async,lr=0.1,replicas=2", ""), ("ps:sync", "onebit"))
COPIES_MIB = 4096  # between each two processes
OVERLAP_MODES = ("sync", "delayed:k=1", "delayed:k=2")
MLP_BYTES = 102_500_000  # about: its gradients
OVERLAP_PACE_MS = round(MLP_BYTES / LINK_BYTES_PER_S * 1e3)  # so that computing takes as long as the network


class Bench(NamedTuple):
    """One all-reduce timed by `gradbus bench`."""

    mode: str
    codec: str
    nodes: int
    shards: int
    mib: int
    link: bool
    sockets: bool = False  # inside one machine: TCP where there would be shared memory

    def words(self) -> list[str]:
        """The command's."""
        size = f"{self.mib}M"
        link = ["--link", LINK] if self.link else []
        codec = ["--codec", self.codec] if self.codec else []
        return ["bench", "all_reduce", "--ranks", str(self.nodes), "--agents", str(self.nodes), "--shards",
                str(self.shards), "--mode", self.mode, *codec, *link, "-b", size, "-e", size, "-n", "5", "-w",
                "2"]  # fmt: skip

    def variables(self) -> dict[str, str]:
        """The embedded agents'."""
        return {"GRADBUS_AGENT_LOCAL_LINKS": "false"} if self.sockets else {}

    def command(self) -> str:
        """As one would type it."""
        return " ".join([*("=".join(pair) for pair in self.variables().items()), "gradbus", *self.words()])

    def run(self) -> dict[str, Any]:
        """The row: time_p50 in us, cpu_s_per_gb, shards_cpu_s_per_gb."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "rows.json"
            run_gradbus([*self.words(), "--json", str(path)], self.variables())
            return json.loads(path.read_text())[-1]

    def bound_us(self) -> float:
        """Of n nodes and k shards, each with a link of B both ways: max(M / B, n M / (k B))."""
        return max(1.0, self.nodes / self.shards) * self.mib * 2**20 / LINK_BYTES_PER_S * 1e6


    def passes(self) -> int:
        """How often a dense gradient is written to and read from a socket, all processes together."""
        if self.mode == "sync":
            return 2 * (self.nodes - 1)
        return self.nodes * (3 if "replicas=2" in self.mode else 2)


class Copies(NamedTuple):
    """What bounds transfers inside one machine: its cores write to sockets and read from them, and nothing else."""

    pairs: int

    def command(self) -> str:
        """As one would type it."""
        return f"python -m modes.copies --pairs {self.pairs} --mib {COPIES_MIB}"

    def run(self) -> dict[str, Any]:
        """gb_per_s, of all pairs together."""
        return {"gb_per_s": copies.rate(self.pairs, COPIES_MIB) / 1e9}


class Placed(NamedTuple):
    """An all-reduce through shards of which some are beside agents or on other links."""

    nodes: int
    where: tuple[str, ...]  # by shard: own, agent-0 ...
    slow: str  # that shard's link has half the rate; "": none
    equal: bool  # every shard holds the same
    parts: tuple[float, ...]  # by shard: what is best for these links, worked out by hand

    def words(self) -> list[str]:
        """The command's."""
        slow = ["--link-of", f"{self.slow}=500mbit"] if self.slow else []
        size = f"{PLACED_MIB}M"
        return ["bench", "all_reduce", "--ranks", str(self.nodes), "--agents", str(self.nodes), "--shards",
                str(len(self.where)), "--shards-on", ",".join(self.where), "--mode", "ps:sync", "--link", LINK, *slow,
                "-b", size, "-e", size, "-n", "9", "-w", "2"]  # fmt: skip

    def variables(self) -> dict[str, str]:
        """The embedded coordinator's."""
        return {"GRADBUS_SERVER_EQUAL_SHARDS": "1"} if self.equal else {}

    def command(self) -> str:
        """As one would type it."""
        return " ".join([*("=".join(pair) for pair in self.variables().items()), "gradbus", *self.words()])

    def run(self) -> dict[str, Any]:
        """The row: time_p50 in us."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "rows.json"
            run_gradbus([*self.words(), "--json", str(path)], self.variables())
            return json.loads(path.read_text())[-1]

    def bound_us(self) -> float:
        """Of the slowest link, for the parts that the shards hold: of all agents' traffic with them."""
        parts = (1 / len(self.where),) * len(self.where) if self.equal else self.parts
        load = {f"agent-{node}": 1.0 for node in range(self.nodes)}  # of M: what its own shard has does not travel
        for index, (part, place) in enumerate(zip(parts, self.where)):
            if place == "own":
                load[f"shard-{index}"] = self.nodes * part * (2 if self.slow == f"shard-{index}" else 1)
            else:
                load[place] += (self.nodes - 2) * part
        return max(load.values()) * PLACED_MIB * 2**20 / LINK_BYTES_PER_S * 1e6


class Overlap(NamedTuple):
    """Two ranks whose computing takes as long as the network needs for their gradients."""

    mode: str

    def words(self) -> list[str]:
        """Up to the program's."""
        return ["run", "-np", "2", "--agents", "2", "--link", LINK, "--no-prefix", "--mode", self.mode, "--"]

    def options(self) -> list[str]:
        """The program and its options."""
        return ["examples/mlp/train.py", "--steps", "20", "--pace", str(OVERLAP_PACE_MS)]

    def command(self) -> str:
        """As one would type it."""
        return "gradbus " + " ".join([*self.words(), "python", *self.options()])

    def run(self) -> dict[str, Any]:
        """The program's JSON line."""
        return run_program([*self.words(), sys.executable, *self.options()])


SERVED_BENCHES = tuple(Bench("ps:sync", "", nodes, shards, SERVED_MIB, link=True) for nodes, shards in SERVED)
COPIES = Copies(2)
LOCAL_BENCHES = tuple(Bench(mode, codec, 2, 2, LOCAL_MIB, link=False, sockets=sockets)
                      for mode, codec in LOCAL for sockets in (False, True))  # fmt: skip
# Beside an agent 1 + (n - 2) x, alone n x, twice that on half the rate; all the same where they can be.
PLACES = (
    (2, ("agent-0", "agent-1"), "", (1 / 2, 1 / 2)),
    (3, ("agent-0", "agent-1", "agent-2"), "", (1 / 3, 1 / 3, 1 / 3)),
    (2, ("agent-0", "agent-1", "own"), "", (1 / 3, 1 / 3, 1 / 3)),
    (3, ("agent-0", "agent-1", "own"), "shard-2", (5 / 13, 5 / 13, 3 / 13)),
    (2, ("own", "own"), "shard-1", (2 / 3, 1 / 3)),
    (2, ("agent-0", "own"), "shard-1", (3 / 4, 1 / 4)),
)
PLACED = tuple(Placed(nodes, where, slow, equal, parts) for nodes, where, slow, parts in PLACES
               for equal in (True, False))  # fmt: skip
OVERLAPS = tuple(map(Overlap, OVERLAP_MODES))
ALL = (*SERVED_BENCHES, *PLACED, COPIES, *LOCAL_BENCHES, *OVERLAPS)

"""Who is measured: one table of programs, and the command line each needs for a list of sizes or a model.

An entrant is Gradbus or a peer in one setting. Every command prints (or writes, for Gradbus) an array of
rows with the keys size, time, time_p50, time_p99 (microseconds) and #wrong.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shlex
from collections.abc import Callable

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PEERS = REPOSITORY / "build/peers"
GRADBUS = os.environ.get("GRADBUS_CLI", "build/release/bin/gradbus")
PYTHON = ".venv/bin/python"
TORCH_RANKS = "scripts/bench/torch_ranks.py"
JSON_FILE = "{json}"  # stands in a command for a file that the runner names and reads
STORE_FILE = "{store}"  # and this one for a file of the ranks to meet in
SMALL_BYTES_MAX = 64 << 10
CORES = os.cpu_count() or 1
# Agents of one machine that are to use TCP, as their peers do, and not the memory that they share.
SOCKETS_ONLY = (("GRADBUS_AGENT_LOCAL_LINKS", "false"),)


@dataclasses.dataclass(frozen=True)
class Command:
    """One command line of a round."""

    words: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    deadline_s: float = 60
    cell: str = ""  # what its one row is about, where the row does not say

    def text(self) -> str:
        """As a user would type it."""
        variables = [f"{name}={value}" for name, value in self.environment]
        words = ("FILE" if word in (JSON_FILE, STORE_FILE) else word for word in self.words)
        return " ".join([*variables, shlex.join(words)])


@dataclasses.dataclass(frozen=True)
class Effort:
    """How long to measure: iterations and warm-up for small and large sizes, seconds a row at most."""

    small: tuple[int, int] = (300, 50)
    large: tuple[int, int] = (20, 5)
    seconds: float = 0.6

    def of(self, size: int) -> tuple[int, int]:
        """(iterations, warm-up) of a size in bytes."""
        return self.small if size <= SMALL_BYTES_MAX else self.large


@dataclasses.dataclass(frozen=True)
class Entrant:
    """A name and the commands of one round."""

    name: str
    ours: bool
    commands: tuple[Command, ...]


def grouped(sizes: list[int], effort: Effort) -> list[tuple[list[int], tuple[int, int]]]:
    """Sizes that are measured with the same effort, together."""
    parts = [[s for s in sizes if s <= SMALL_BYTES_MAX], [s for s in sizes if s > SMALL_BYTES_MAX]]
    return [(part, effort.of(part[0])) for part in parts if part]


def sweeps(sizes: list[int]) -> list[tuple[int, int, int]]:
    """(first, last, factor) of as few geometric runs as give exactly these ascending sizes."""
    found: list[tuple[int, int, int]] = []
    at = 0
    while at < len(sizes):
        end, factor = at, 2
        if at + 1 < len(sizes) and sizes[at] > 0 and sizes[at + 1] % sizes[at] == 0:
            factor = sizes[at + 1] // sizes[at]
            while end + 1 < len(sizes) and sizes[end + 1] == sizes[end] * factor:
                end += 1
        found.append((sizes[at], sizes[end], factor))
        at = end + 1
    return found


def gradbus_sizes(name: str, sizes: list[int], effort: Effort, *options: str,
                  environment: tuple[tuple[str, str], ...] = ()) -> Entrant:
    """`gradbus bench all_reduce` over the sizes."""
    commands = []
    for part, (iterations, warmup) in grouped(sizes, effort):
        for first, last, factor in sweeps(part):
            words = [GRADBUS, "bench", "all_reduce", *options, "-b", str(first), "-e", str(last), "-f", str(factor),
                     "-n", str(iterations), "-w", str(warmup), "--check", "--json", JSON_FILE]
            commands.append(Command(tuple(words), environment))
    return Entrant(name, True, tuple(commands))


def gradbus_model(name: str, model: str, *options: str) -> Entrant:
    """`gradbus bench all_reduce --model`."""
    words = (GRADBUS, "bench", "all_reduce", *options, "--model", model, "-n", "10", "-w", "3", "--check",
             "--json", JSON_FILE)
    return Entrant(name, True, (Command(words),))


def sizes_words(sizes: list[int]) -> list[str]:
    """The end of a peer's command line for sizes."""
    return ["sizes", *map(str, sizes)]


def storm_words(model: str) -> list[str]:
    """The end of a peer's command line for a model: peers.py writes the file."""
    return ["storm", str((PEERS / f"{model}.counts").relative_to(REPOSITORY))]


@dataclasses.dataclass(frozen=True)
class Peer:
    """A peer in one setting: makes a command line out of ranks, effort and what to exchange."""

    name: str
    start: Callable[[int], list[str]]  # the launcher's words for so many ranks
    environment: tuple[tuple[str, str], ...] = ()
    flags: bool = False  # --iterations 20, or the bare numbers

    def command(self, ranks: int, counts: tuple[int, int], seconds: float, what: list[str]) -> Command:
        """One command line."""
        numbers = [str(counts[0]), str(counts[1]), f"{seconds:g}"]
        if self.flags:
            numbers = ["--iterations", numbers[0], "--warmup", numbers[1], "--seconds", numbers[2]]
        return Command((*self.start(ranks), *numbers, *what), self.environment)

    def sizes(self, ranks: int, sizes: list[int], effort: Effort) -> Entrant:
        """The entrant for a list of sizes."""
        commands = [self.command(ranks, counts, effort.seconds, sizes_words(part))
                    for part, counts in grouped(sizes, effort)]
        return Entrant(self.name, False, tuple(commands))

    def storm(self, ranks: int, model: str, seconds: float) -> Entrant:
        """The entrant for a model's gradients, in each form the peer has."""
        return Entrant(self.name, False, (self.command(ranks, (10, 2), seconds, storm_words(model)),))


def openmpi(*options: str) -> Callable[[int], list[str]]:
    """mpirun of Open MPI. Ranks are bound to cores while there are enough, its own default."""

    def start(ranks: int) -> list[str]:
        crowd = ["--oversubscribe"] if ranks > CORES else []
        return ["mpirun.openmpi", *crowd, *options, "-np", str(ranks), "build/peers/mpi_openmpi"]

    return start


def mpich(ranks: int) -> list[str]:
    """mpiexec of MPICH."""
    bind = ["-bind-to", "core"] if ranks <= CORES else []
    return ["mpiexec.mpich", *bind, "-np", str(ranks), "build/peers/mpi_mpich"]


def gloo(ranks: int) -> list[str]:
    """torch.distributed: the program starts its ranks itself."""
    return [PYTHON, TORCH_RANKS, "gloo", "--ranks", str(ranks)]


def horovod(ranks: int) -> list[str]:
    """horovodrun with the Python it was built for."""
    python = "build/peers/horovod/bin/python"
    return ["build/peers/horovod/bin/horovodrun", "-np", str(ranks), "--gloo", python, TORCH_RANKS, "horovod"]


AS_ROOT = (("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"))
# Horovod looks for ready tensors each millisecond unless told; shorter is better for it here.
FAST_CYCLE = (("HOROVOD_CYCLE_TIME", "0.1"),)

OPENMPI = Peer("Open MPI", openmpi(), AS_ROOT)
OPENMPI_SM = Peer("Open MPI, coll/sm", openmpi("--mca", "coll_sm_priority", "100"), AS_ROOT)
OPENMPI_TCP = Peer("Open MPI, TCP", openmpi("--mca", "pml", "ob1", "--mca", "btl", "tcp,self"), AS_ROOT)
MPICH = Peer("MPICH", mpich)
MPICH_TCP = Peer("MPICH, TCP", mpich, (("UCX_TLS", "tcp,self"),))
GLOO = Peer("Gloo", gloo, flags=True)
HOROVOD = Peer("Horovod", horovod, FAST_CYCLE, flags=True)

LOCAL_PEERS = (OPENMPI, OPENMPI_SM, MPICH, GLOO, HOROVOD)
TCP_PEERS = (OPENMPI_TCP, MPICH_TCP, GLOO, HOROVOD)

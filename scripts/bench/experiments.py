"""What is measured: the list of experiments, each with its entrants, sizes and limit.

Experiments are built fresh for every run, so `--quick` and `--without-horovod` are choices of this list
and of nothing else.
"""

from __future__ import annotations

import dataclasses
import shlex

from bench import entrants, limits, models
from bench.entrants import Command, Effort, Entrant, Peer

MIB = 1 << 20
LATENCY = [4, 64, 256, 4096]
MODELS = ("resnet50", "bert-base")
PROGRAMS = {  # what a round of each runs; few steps keep it short
    "digits": ("examples/digits/train.py", "--time", "--epochs", "6"),
    "charlm": ("examples/charlm/train.py", "--time", "--steps", "20", "--batch-size", "8", "--sample", "1"),
    "mlp": ("examples/mlp/train.py", "--time", "--steps", "16"),
}
LINK_GBIT = 1.0
GRADBUS, PRIVATE = "Gradbus", "Gradbus, private buffers"
GRADBUS_OLD_TORCH = "Gradbus (torch 1.13)"
DDP = "DistributedDataParallel"


@dataclasses.dataclass(frozen=True)
class Experiment:
    """Entrants that take turns. `kind`: sizes | forms | programs, what its cells are."""

    name: str
    title: str
    kind: str
    entrants: tuple[Entrant, ...]
    limit: dict | None = None
    size_expected: int = 0  # bytes every row must have exchanged; 0: the cell says


@dataclasses.dataclass(frozen=True)
class Choice:
    """What this run leaves out."""

    quick: bool = False
    horovod: bool = True

    def peers(self, every: tuple[Peer, ...]) -> list[Peer]:
        """Those that take part."""
        return [peer for peer in every if self.horovod or peer is not entrants.HOROVOD]

    def effort(self) -> Effort:
        """How long a row is measured."""
        return Effort((100, 20), (5, 2), 0.2) if self.quick else Effort()


def local_two(choice: Choice) -> Experiment:
    """Two ranks of one machine."""
    sizes = [*LATENCY, 65536, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB]
    if choice.quick:
        sizes = [4, 4096, MIB, 25 * MIB]
    where = ("--ranks", "2", "--agents", "1")
    effort = choice.effort()
    ours = [entrants.gradbus_sizes(GRADBUS, sizes, effort, *where),
            entrants.gradbus_sizes(PRIVATE, sizes, effort, *where, "--private")]
    peers = [peer.sizes(2, sizes, effort) for peer in choice.peers(entrants.LOCAL_PEERS)]
    return Experiment("local-2", "Two ranks of one machine", "sizes", (*ours, *peers), limits.memory_limit(4))


def local_four(choice: Choice) -> Experiment:
    """More ranks than cores."""
    sizes = [4, 4096, MIB, 25 * MIB] if not choice.quick else [4, 25 * MIB]
    effort = dataclasses.replace(choice.effort(), small=(100, 10), large=(10, 3))
    ours = entrants.gradbus_sizes(GRADBUS, sizes, effort, "--ranks", "4", "--agents", "1")
    peers = [bounded(peer.sizes(4, sizes, effort), 25) for peer in choice.peers(entrants.LOCAL_PEERS)]
    return Experiment("local-4", "Four ranks of one machine", "sizes", (ours, *peers), limits.memory_limit(8))


def tcp_two(choice: Choice) -> Experiment:
    """Two agents, a rank each, TCP over loopback."""
    sizes = [4, 256, 4096, 65536, MIB, 10 * MIB, 100 * MIB] if not choice.quick else [4, 65536, 100 * MIB]
    where = ("--ranks", "2", "--agents", "2", "--transport", "tcp")
    ours = entrants.gradbus_sizes(GRADBUS, sizes, choice.effort(), *where, environment=entrants.SOCKETS_ONLY)
    peers = [peer.sizes(2, sizes, choice.effort()) for peer in choice.peers(entrants.TCP_PEERS)]
    return Experiment("tcp-2", "Two agents over TCP loopback", "sizes", (ours, *peers), limits.tcp_limit())


def gloo_on_link(agents: int, sizes: list[int], effort: Effort) -> Entrant:
    """Gloo in the namespaces that `gradbus run --link` makes."""

    def start(ranks: int) -> list[str]:
        return [*on_link(agents), "-np", str(ranks), "--no-prefix", "--", entrants.PYTHON, entrants.TORCH_RANKS,
                "gloo", "--store", entrants.STORE_FILE]

    return Peer("Gloo", start, flags=True).sizes(agents, sizes, effort)


def on_link(agents: int) -> list[str]:
    """The launcher of a job in namespaces."""
    return [entrants.GRADBUS, "run", "--agents", str(agents), "--link", f"{LINK_GBIT:g}gbit"]


def link(agents: int, choice: Choice) -> Experiment:
    """So many agents, a rank each, joined by a limited link."""
    sizes = [4096, 100 * MIB] if not choice.quick else [100 * MIB]
    effort = dataclasses.replace(choice.effort(), small=(100, 10), large=(5, 1), seconds=6)
    where = ("--ranks", str(agents), "--agents", str(agents), "--transport", "tcp", "--link", f"{LINK_GBIT:g}gbit")
    ours = entrants.gradbus_sizes(GRADBUS, sizes, effort, *where)
    both = (bounded(ours, 45), bounded(gloo_on_link(agents, sizes, effort), 45))
    title = f"{agents} agents on a link of {LINK_GBIT:g} Gbit/s"
    return Experiment(f"link-{agents}", title, "sizes", both, limits.link_limit(agents, LINK_GBIT))


def storm(model: str, choice: Choice) -> Experiment:
    """All gradients of a step, two ranks of one machine."""
    size = 4 * sum(models.MODELS[model]())
    seconds = 1.0 if not choice.quick else 0.3
    ours = entrants.gradbus_model(GRADBUS, model, "--ranks", "2", "--agents", "1")
    peers = [bounded(peer.storm(2, model, seconds), 120) for peer in choice.peers(entrants.LOCAL_PEERS)]
    return Experiment(f"storm-{model}", f"A step's gradients of {model}, two ranks", "forms", (ours, *peers),
                      limits.memory_limit(4), size)


def training(backend: str, launcher: list[str], python: str) -> tuple[Command, ...]:
    """One command per program, two ranks."""
    found = []
    for name, program in PROGRAMS.items():
        words = [python, *program, "--backend", backend]
        if "horovodrun" in launcher[0]:  # takes --time for an option of its own
            words = ["bash", "-c", shlex.join(["exec", *words])]
        found.append(Command((*launcher, *words), (("OMP_NUM_THREADS", "1"),), 90, name))
    return tuple(found)


def train(name: str, title: str, launcher: list[str], horovod_launcher: list[str], choice: Choice) -> Experiment:
    """Whole training steps. Horovod needs torch 1.13, so Gradbus runs with that one as well."""
    old, new = ".venv-debian/bin/python", entrants.PYTHON
    teams = [(GRADBUS, True, "gradbus", launcher, new), (DDP, False, "ddp", launcher, new)]
    if choice.horovod:
        teams += [(GRADBUS_OLD_TORCH, True, "gradbus", launcher, old),
                  ("Horovod", False, "horovod", horovod_launcher, "build/peers/horovod/bin/python")]
    found = [Entrant(who, ours, training(backend, start, python))
             for who, ours, backend, start, python in teams]
    return Experiment(name, title, "programs", tuple(found))


def trainings(choice: Choice) -> list[Experiment]:
    """Steps on one machine and over a limited link."""
    end = ["-np", "2", "--no-prefix", "--"]
    lab = [*on_link(2), *end]
    horovodrun = ["build/peers/horovod/bin/horovodrun", "-np", "2", "--gloo"]
    in_lab = [*lab, "build/peers/horovod/bin/python", "scripts/bench/horovod_in_lab.py", entrants.STORE_FILE]
    return [train("train-local", "Training steps, two ranks of one machine",
                  [entrants.GRADBUS, "run", *end], horovodrun, choice),
            train("train-link", f"Training steps, two agents on a link of {LINK_GBIT:g} Gbit/s", lab, in_lab, choice)]


def bounded(entrant: Entrant, deadline_s: float) -> Entrant:
    """The same with another deadline for each command."""
    commands = tuple(dataclasses.replace(command, deadline_s=deadline_s) for command in entrant.commands)
    return dataclasses.replace(entrant, commands=commands)


def all_experiments(choice: Choice) -> list[Experiment]:
    """In the order they are run and reported."""
    found = [local_two(choice), local_four(choice), tcp_two(choice)]
    found += [link(agents, choice) for agents in ((2,) if choice.quick else (2, 3, 4))]
    found += [storm(model, choice) for model in (MODELS[:1] if choice.quick else MODELS)]
    return found if choice.quick else found + trainings(choice)

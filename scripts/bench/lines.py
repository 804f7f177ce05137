"""The promises about speed, one row each: our time, the best peer's, the ratio, the target, the limit.

A promise names an experiment, the cells it is about and either a ratio to the best peer, a share of the
limit, or both. It is judged by its worst cell. Evaluated from the dictionary of results.py alone.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable

from bench import limits, results
from bench.results import Entry

MIB = 1 << 20
LARGE_FROM, LARGE_TO = MIB, 256 * MIB
COMMUNICATION_SHARE_MIN = 1 / 3  # training on one machine: below it, nothing is promised


@dataclasses.dataclass(frozen=True)
class Promise:
    """What one row of the table is about. `peers`: words a peer's name begins with; none: all."""

    label: str
    experiment: str
    cells: Callable[[str], bool] = lambda cell: True
    ratio: float | None = None  # peer's time over ours, at least
    share: float | None = None  # the limit's time over ours, at least
    ours: str = "Gradbus"
    peers: tuple[str, ...] = ()
    communication: float = 0  # applies where the peer's step is communication for at least this share


@dataclasses.dataclass(frozen=True)
class Verdict:
    """One row, judged. Times in microseconds; None where not measured."""

    promise: Promise
    cell: str = ""
    ours_us: float | None = None
    peer: str = ""
    peer_us: float | None = None
    ratio: float | None = None
    ratio_median: float | None = None
    limit_us: float | None = None
    share: float | None = None
    note: str = ""
    applies: bool = True
    without: tuple[str, ...] = ()  # peers that have no time here
    several: bool = False  # the promise is about more cells than this one

    def shortfall(self) -> float:
        """How far under its target, 0.1 for 10 %; negative when it is over."""
        pairs = [(self.ratio, self.promise.ratio), (self.share, self.promise.share)]
        return max((1 - got / wanted for got, wanted in pairs if got is not None and wanted is not None), default=0.0)

    def known(self) -> bool:
        """Whether there is a figure for every target."""
        return not ((self.promise.ratio is not None and self.ratio is None)
                    or (self.promise.share is not None and self.share is None))

    def words(self) -> str:
        """Met, missed by how much, or why there is no answer."""
        if not self.applies:
            return self.note
        if not self.known():
            return f"not measured: {self.note}" if self.note else "not measured"
        missed = self.shortfall()
        without = f" (without {', '.join(self.without)})" if self.without and self.promise.ratio is not None else ""
        return ("met" if missed <= 0 else f"missed by {missed:.1%}") + without


def one_of(*sizes: int) -> Callable[[str], bool]:
    """Exactly these sizes."""
    return lambda cell: cell in {str(size) for size in sizes}


def between(low: int, high: int) -> Callable[[str], bool]:
    """Sizes from low to high."""
    return lambda cell: cell.isdigit() and low <= int(cell) <= high


LARGE = between(LARGE_FROM, LARGE_TO)
LOCAL, TCP = "2 local ranks", "TCP loopback, 2 agents"
PRIVATE = "Gradbus, private buffers"
PROMISES = (
    Promise(f"{LOCAL}, arena, 1 to 256 MiB, beside the best peer", "local-2", LARGE, ratio=5),
    Promise(f"{LOCAL}, arena, 1 to 256 MiB, beside what memory allows", "local-2", LARGE, share=0.8),
    Promise(f"{LOCAL}, private buffers, 1 to 256 MiB", "local-2", LARGE, ratio=1.2, ours=PRIVATE),
    Promise(f"{LOCAL}, 4 B, beside Open MPI", "local-2", one_of(4), ratio=1, peers=("Open MPI",)),
    Promise(f"{LOCAL}, 4 KiB, beside Open MPI", "local-2", one_of(4096), ratio=2, peers=("Open MPI",)),
    Promise("4 ranks on 2 cores, 25 MiB", "local-4", one_of(25 * MIB), ratio=4),
    Promise("4 ranks on 2 cores, 4 B", "local-4", one_of(4), ratio=1),
    Promise(f"{TCP}, 100 MiB, beside the best TCP peer", "tcp-2", one_of(100 * MIB), ratio=1.5),
    Promise(f"{TCP}, 100 MiB, beside `iperf3 --bidir`", "tcp-2", one_of(100 * MIB), share=0.9),
    Promise(f"{TCP}, 4 B to 64 KiB, beside Gloo", "tcp-2", between(4, 65536), ratio=5, peers=("Gloo",)),
    *(Promise(f"1 Gbit/s, {n} agents, 100 MiB, of the raw line rate", f"link-{n}", one_of(100 * MIB), share=0.95)
      for n in (2, 3, 4)),
    *(Promise(f"a step's gradients of {model}, 2 local ranks", f"storm-{model}", ratio=4)
      for model in ("resnet50", "bert-base")),
)
PROGRAMS = ("digits", "charlm", "mlp")
TRAINING = tuple(
    Promise(f"training step of {program}, {where}, beside {peer}", experiment, lambda cell, p=program: cell == p,
            ratio=target, ours=ours, peers=(peer,), communication=share)
    for experiment, where, target, share in (("train-local", "one machine", 1.2, COMMUNICATION_SHARE_MIN),
                                             ("train-link", "1 Gbit/s", 1.0, 0))
    for program in PROGRAMS
    for peer, ours in (("DistributedDataParallel", "Gradbus"), ("Horovod", "Gradbus (torch 1.13)"))
)


def peers_of(experiment: Entry, promise: Promise) -> list[Entry]:
    """The entrants a promise compares with."""
    return [entrant for entrant in experiment["entrants"]
            if not entrant["ours"] and (not promise.peers or entrant["name"].startswith(promise.peers))]


def times_of(experiment: Entry, entrant: Entry, cell: str, time_of: Callable) -> list[tuple[float, str]]:
    """(time, name) of an entrant in a cell; where cells are forms, in every form."""
    if experiment["kind"] != "forms":
        found = [(time_of(entrant, cell), entrant["name"])]
    else:
        found = [(time_of(entrant, form), f"{entrant['name']} ({form})") for form in entrant["cells"]]
    return [(time, name) for time, name in found if time is not None]


def best_peer(experiment: Entry, promise: Promise, cell: str, time_of: Callable) -> tuple[float | None, str]:
    """(time, name) of the fastest peer; None when no peer has a time."""
    every = [timed for peer in peers_of(experiment, promise) for timed in times_of(experiment, peer, cell, time_of)]
    return min(every, default=(None, ""))


def without_time(experiment: Entry, promise: Promise, cell: str) -> tuple[str, ...]:
    """Names of the peers that have no time in a cell."""
    return tuple(peer["name"] for peer in peers_of(experiment, promise)
                 if not times_of(experiment, peer, cell, results.best_us))


def size_of(experiment: Entry, cell: str) -> int:
    """Bytes a cell exchanges; 0 for a training program."""
    return int(cell) if cell.isdigit() else int(experiment.get("size", 0))


def judge_cell(promise: Promise, experiment: Entry, ours: Entry, cell: str, rates: Entry) -> Verdict:
    """The verdict on one cell."""
    ours_us, ours_median = results.best_us(ours, cell), results.median_us(ours, cell)
    peer_us, peer = best_peer(experiment, promise, cell, results.best_us)
    median_us, _ = best_peer(experiment, promise, cell, results.median_us)
    limit = limits.limit_us(experiment, size_of(experiment, cell), rates)
    if ours_us is None:
        note = why_not(ours, cell)
    elif peer_us is None and promise.ratio is not None:
        note = "no peer finished"
    else:
        note = "its limit was not measured" if limit is None else ""
    return Verdict(promise, cell, ours_us, peer, peer_us, over(peer_us, ours_us), over(median_us, ours_median), limit,
                   over(limit, ours_us), note, without=without_time(experiment, promise, cell))


def over(above: float | None, below: float | None) -> float | None:
    """Their ratio, when both are there."""
    return above / below if above is not None and below else None


def why_not(entrant: Entry, cell: str) -> str:
    """Why an entrant has no time for a cell."""
    if entrant["cells"].get(cell, {}).get("wrong"):
        return "its result was wrong"
    return entrant["problems"][0]["problem"] if entrant["problems"] else "it was not run"


def check_applies(verdict: Verdict, experiment: Entry) -> Verdict:
    """Notes where a promise is about more communication than the peer's step has."""
    peer = results.find_entrant(experiment, verdict.peer)
    shares = peer["cells"].get(verdict.cell, {}).get("share", []) if peer else []
    if not shares or statistics.median(shares) >= verdict.promise.communication:
        return verdict
    note = f"no promise: communication is {statistics.median(shares):.0%} of the peer's step"
    return dataclasses.replace(verdict, note=note, applies=False)


def judge(promise: Promise, measured: Entry) -> Verdict:
    """The verdict on the worst of a promise's cells; those without a figure come first."""
    experiment = results.find_experiment(measured, promise.experiment)
    ours = results.find_entrant(experiment, promise.ours) if experiment else None
    if experiment is None or ours is None:
        return Verdict(promise, note="left out of this run")
    own_cells = ["arena"] if experiment["kind"] == "forms" else results.all_cells(experiment)
    verdicts = [check_applies(judge_cell(promise, experiment, ours, cell, measured["rates"]), experiment)
                for cell in own_cells if promise.cells(cell)]
    if not verdicts:
        return Verdict(promise, note=why_not(ours, ""))
    worst = max(verdicts, key=lambda verdict: (not verdict.known(), verdict.shortfall()))
    return dataclasses.replace(worst, several=len(verdicts) > 1)


def judge_all(measured: Entry) -> list[Verdict]:
    """Every promise of shared memory and networks, then the training steps."""
    return [judge(promise, measured) for promise in (*PROMISES, *TRAINING)]

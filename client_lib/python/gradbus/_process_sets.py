"""Process sets: operations among some of the ranks.

A set is a job of its own on the daemons, named ``<job>/<number>``; its operations are matched among
its members alone. Sets may overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from . import _core
from ._errors import bad_argument
from ._ops import whole_number
from ._session import before_close, current, is_initialized


class ProcessSet:
    """Some ranks of the job, numbered in the order given.

    It can be used after ``add_process_set()`` or ``init(process_sets=...)``; operations take it as
    ``process_set=``.
    """

    def __init__(self, ranks: Sequence[int]) -> None:
        try:
            numbers = [whole_number(rank) for rank in ranks]
        except TypeError:
            numbers = [None]
        if None in numbers:
            raise bad_argument(
                f"process set: {ranks!r} is no list of ranks", "pass whole numbers, e.g. [0, 2]"
            )
        self._ranks: list[int] = [number for number in numbers if number is not None]
        self._added = False
        self._session: _core.Session | None = None
        self._callbacks: list[Callable[[bool], None]] = []

    def __repr__(self) -> str:
        return f"ProcessSet({self.ranks})"

    @property
    def ranks(self) -> list[int]:
        """Its members, by their numbers in the job."""
        return self._ranks

    @property
    def initialized(self) -> bool:
        """True between add_process_set() and remove_process_set() or shutdown()."""
        return self._added

    def included(self) -> bool:
        """Whether this process is a member."""
        return current().rank in self.ranks

    def rank(self) -> int:
        """This process's number in the set, from 0. Raises InvalidError where it is no member."""
        return self._session_of("rank").rank

    def size(self) -> int:
        """How many processes the set has."""
        return len(self.ranks)

    def _session_of(self, verb: str) -> _core.Session:
        if not self._added:
            raise bad_argument(
                f"{verb}: process set {self.ranks} is not known",
                "call gradbus.add_process_set() with it on every rank first",
            )
        if self._session is None:
            raise bad_argument(
                f"{verb}: rank {current().rank} is not in process set {self.ranks}",
                "call it on the members only: if process_set.included()",
            )
        return self._session

    def _open(self) -> None:
        self._session = current().process_set(self.ranks)
        self._added = True
        before_close(self._close)

    def _before_close(self, callback: Callable[[bool], None]) -> None:
        self._callbacks.append(callback)

    def _close(self, process_goes_on: bool = True) -> None:
        for callback in reversed(self._callbacks):
            callback(process_goes_on)
        self._callbacks.clear()
        session, self._session = self._session, None
        self._added = False
        if self in _added:
            _added.remove(self)
        if session is not None:
            session.close()


class _GlobalProcessSet(ProcessSet):
    """All ranks."""

    process_set_id = 0  # Horovod's number of it

    def __init__(self) -> None:
        super().__init__([])

    def __repr__(self) -> str:
        return "global_process_set"

    def __str__(self) -> str:
        return f"ProcessSet(process_set_id=0, ranks={self.ranks}, mpi_comm=None)"  # as Horovod prints it

    @property
    def ranks(self) -> list[int]:
        """All numbers below the job's size; none before init()."""
        return list(range(current().size)) if is_initialized() else []

    @property
    def initialized(self) -> bool:
        return is_initialized()

    def included(self) -> bool:
        return True

    def size(self) -> int:
        return current().size

    def _session_of(self, verb: str) -> _core.Session:
        return current()

    def _before_close(self, callback: Callable[[bool], None]) -> None:
        before_close(callback)


global_process_set: ProcessSet = _GlobalProcessSet()
_added: list[ProcessSet] = []  # in the order in which they were added


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Makes a set usable; returns it. Every rank of the job calls it, members or not, in one order.

    Raises MismatchError (the ranks gave different lists: all of them learn it), InvalidError (an
    empty list, a rank that does not exist or is named twice, the ranks of a set that there is, in any
    order), TimeoutError.
    """
    made = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    if made.initialized:
        raise bad_argument(
            f"add_process_set: {made!r} is in use already", "pass another set, or use this one"
        )
    same = next((known for known in _added if sorted(known.ranks) == sorted(made.ranks)), None)
    if same is not None:
        raise bad_argument(
            f"add_process_set: {same!r} has the ranks of {made!r} already",
            "use that set, or call gradbus.remove_process_set() with it on every rank first",
        )
    made._open()
    _added.append(made)
    return made


def remove_process_set(process_set: ProcessSet) -> bool:
    """Leaves the set; False when it was not added (or is all of them). Every rank calls it, members
    when they have finished its operations; then a set of the same ranks may be added again."""
    if not isinstance(process_set, ProcessSet):
        raise bad_argument(
            f"remove_process_set: process_set={process_set!r}", "pass what add_process_set() returned"
        )
    if process_set is global_process_set or not process_set.initialized:
        return False
    process_set._close()
    return True


def session_of(process_set: ProcessSet, verb: str) -> _core.Session:
    """Where operations of this set are started, or an InvalidError that says why they cannot be."""
    if not isinstance(process_set, ProcessSet):
        raise bad_argument(
            f"{verb}: process_set={process_set!r}", "pass what add_process_set() returned"
        )
    return process_set._session_of(verb)


def lowest_rank(process_set: ProcessSet) -> int:
    """The first rank of the set, by its number in the job: its parameters win."""
    return 0 if process_set is global_process_set else process_set.ranks[0]


def checked_root(root_rank: int, verb: str, process_set: ProcessSet = global_process_set) -> int:
    """The number in the set of a root that is given, as everywhere, by its rank in the job."""
    session = session_of(process_set, verb)
    members = range(session.size) if process_set is global_process_set else process_set.ranks
    number = None if isinstance(root_rank, (bool, float)) else whole_number(root_rank)
    if number is None or number not in members:
        allowed = (
            f"a rank below {session.size}"
            if process_set is global_process_set
            else f"one of {process_set.ranks}"
        )
        raise bad_argument(f"{verb}: root_rank={root_rank!r}", f"pass {allowed}")
    return members.index(number)

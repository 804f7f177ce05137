"""Process sets as Horovod has them: their ranks are in ascending order, and they have a number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import _process_sets as core
from .._errors import bad_argument
from .._mpi import is_communicator
from .._objects import allgather_object
from .._session import current

_by_number: dict[int, core.ProcessSet] = {0: core.global_process_set}


class ProcessSet(core.ProcessSet):
    """Some ranks of the job, numbered in ascending order, or those of a communicator of mpi4py.

    A communicator's ranks are known when the set is added. All ranks of the job add their part of a split one.
    """

    def __init__(self, ranks_or_comm: Sequence[int] | Any) -> None:
        self.mpi_comm = ranks_or_comm if is_communicator(ranks_or_comm) else None
        super().__init__([] if self.mpi_comm is not None else ranks_or_comm)
        self._ranks.sort()
        self._number: int | None = None

    @property
    def process_set_id(self) -> int | None:
        """Its number in the job, the same on all ranks. None while the set is not in use."""
        return self._number

    @process_set_id.setter
    def process_set_id(self, number: int) -> None:
        raise bad_argument(f"process_set_id={number!r}: sets get their numbers when they are added",
                           "call hvd.add_process_set()")  # fmt: skip

    def __str__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks}, mpi_comm={self.mpi_comm})"

    def _open(self) -> None:
        super()._open()
        self._number = next(number for number in range(len(_by_number) + 1) if number not in _by_number)
        _by_number[self._number] = self

    def _close(self, process_goes_on: bool = True) -> None:
        super()._close(process_goes_on)
        if self._number is not None:
            _by_number.pop(self._number, None)
        self._number = None


def sorted_set(process_set: core.ProcessSet | Sequence[int]) -> core.ProcessSet:
    """A list of ranks becomes a set in ascending order."""
    return process_set if isinstance(process_set, core.ProcessSet) else ProcessSet(process_set)


def add_process_set(process_set: core.ProcessSet | Sequence[int]) -> core.ProcessSet:
    """Makes a set usable and returns it. Every rank of the job calls it, members or not, in the same order.

    It needs no HOROVOD_DYNAMIC_PROCESS_SETS. Raises what gradbus.add_process_set() does, and InvalidError for a set of
    all ranks.
    """
    made = sorted_set(process_set)
    if getattr(made, "mpi_comm", None) is not None:
        return _add_parts(made)
    return _add(made)


def _add_parts(mine: core.ProcessSet) -> core.ProcessSet:
    """A set for each part of a split communicator. A process has its own part only, and a set needs all ranks."""
    comm = mine.mpi_comm  # type: ignore[attr-defined]
    mine._ranks = sorted(comm.allgather(current().rank)) if comm else []  # a null communicator is false
    parts = sorted({tuple(part) for part in allgather_object(mine._ranks, name="horovod/communicators") if part})
    for part in parts:
        _add(mine if list(part) == mine.ranks else ProcessSet(part))
    return mine


def _add(made: core.ProcessSet) -> core.ProcessSet:
    if made is not core.global_process_set and made.ranks == core.global_process_set.ranks:
        raise bad_argument(f"add_process_set: {made.ranks} are all ranks", "use hvd.global_process_set")
    return core.add_process_set(made)


def remove_process_set(process_set: core.ProcessSet) -> bool:
    """Leaves the set on every rank. False if it was not in use, or is the global one."""
    return core.remove_process_set(process_set)


def sets_in_use() -> dict[int, list[int]]:
    """The ranks of each set, by its number."""
    return {number: list(one.ranks) for number, one in _by_number.items() if one.initialized}


def set_of_number(process_set_id: int) -> core.ProcessSet:
    """The set with this ``process_set_id``. Raises InvalidError if none in use has it."""
    found = _by_number.get(process_set_id)
    if found is None or not found.initialized:
        raise bad_argument(f"process set {process_set_id} is not known", "pass the process_set_id of a set in use")
    return found

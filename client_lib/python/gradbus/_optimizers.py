"""Calls for all distributed optimizers of the process, for scripts that do not have the objects."""

from __future__ import annotations

import weakref
from typing import Protocol

from ._session import before_close, current


class Flushable(Protocol):
    """A distributed optimizer."""

    def flush(self) -> int:
        """Ends what is under way."""

    def staleness(self) -> dict[str, int]:
        """By parameter, in steps."""


_made: list[weakref.ref[Flushable]] = []  # of this session, in order


def made(optimizer: Flushable) -> None:
    """From here on flush() and staleness() are its, too, as long as it lives."""
    if not _made:
        before_close(lambda _: _made.clear())
    _made[:] = [*(one for one in _made if one() is not None), weakref.ref(optimizer)]


def superseded(optimizer: Flushable | None) -> None:
    """A newer one has its parameters: flush() and staleness() leave it out."""
    _made[:] = [one for one in _made if one() is not optimizer]


def _alive() -> list[Flushable]:
    current()  # refuses without a session
    return [optimizer for one in _made if (optimizer := one()) is not None]


def flush() -> int:
    """Calls ``flush()`` of every distributed optimizer of this process, in the order of their creation.
    Returns how many steps and exchanges that took. Every rank calls it.

    Raises what ``DistributedOptimizer.flush()`` raises.
    """
    return sum(optimizer.flush() for optimizer in _alive())


def staleness() -> dict[str, int]:
    """``staleness()`` of all optimizers, by parameter. If two have the same name, the larger value."""
    ages: dict[str, int] = {}
    for optimizer in _alive():
        for name, age in optimizer.staleness().items():
            ages[name] = max(age, ages.get(name, age))
    return ages

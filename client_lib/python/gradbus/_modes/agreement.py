"""What ranks find out about each other's counts of steps and rounds, in modes in which they step on their own."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .._errors import MismatchError
from .._ops import Max
from .memory import memory_of

if TYPE_CHECKING:
    from .. import _core

_I64 = 6  # GRADBUS_I64


class Agreement:
    """The greatest of the ranks' values, of a few integers."""

    def __init__(self, session: _core.Session, name: str, count: int) -> None:
        (self.core,) = session.register_buckets(
            [(name, count, _I64, int(Max), "none", 0, "sync")]
        )
        self._values = memory_of(self.core, ctypes.c_int64)[0]
        self.started = False

    def start(self, *values: int) -> None:
        """Waits for nobody."""
        self._values[:] = values
        self.core.start()
        self.started = True

    def end(self) -> list[int]:
        """After start(): waits for all ranks; after a TimeoutError it may be called again."""
        self.core.wait()
        self.started = False
        return list(self._values)

    def greatest(self, *values: int) -> list[int]:
        """Both; after a TimeoutError it may be called again."""
        if not self.started:
            self.start(*values)
        return self.end()


class EqualSteps:
    """Whether all ranks have made the same number of steps where they exchange something.

    Each rank brings its number to a place of its own, so that all of them can name who differs.
    """

    def __init__(self, session: _core.Session, name: str, mode: str, ranks: Sequence[int]) -> None:
        """``ranks``: numbers of the session's ranks in the job."""
        self.agreement = Agreement(session, name, session.size)
        self._rank = session.rank
        self._mode = mode
        self._ranks = ranks
        self._error: MismatchError | None = None

    def start(self, steps: int) -> None:
        """This rank has made so many since the last flush(). Waits for nobody."""
        self._refuse()
        self.agreement.start(*(steps if place == self._rank else 0 for place in range(len(self._ranks))))

    def end(self) -> None:
        """Waits for all ranks. Raises MismatchError on all of them alike, and from then on at once."""
        self._refuse()
        if not self.agreement.started:
            return  # before a TimeoutError of something else
        steps = self.agreement.end()
        if min(steps) != max(steps):
            self._error = _steps_differ_error(self._mode, dict(zip(self._ranks, steps)))
            self._refuse()

    def _refuse(self) -> None:
        if self._error is not None:
            raise self._error


def _steps_differ_error(mode: str, steps: dict[int, int]) -> MismatchError:
    by_count: dict[int, list[int]] = {}
    for rank, count in steps.items():
        by_count.setdefault(count, []).append(rank)
    made = ", ".join(f"{count} by {_listed(ranks)}" for count, ranks in sorted(by_count.items()))
    return MismatchError(
        f"GB-O902 TENSOR_MISMATCH: ranks make different numbers of steps in mode {mode}: since the last flush() {made} "
        "| next: make as many steps on every rank, and call flush() after the same step"
    )


def _listed(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:8]))
    more = f" and {len(ranks) - 8} more" if len(ranks) > 8 else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}{more}"

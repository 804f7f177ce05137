"""A thread that advances the works that no thread waits for. Any thread.

Most operations need their rank several times: when all ranks have registered, and for each of their rounds. A thread
that waits in Gradbus does that for the whole process. Otherwise this thread does it every few milliseconds, and it
writes the results of works that have ended. So it also holds the works that the caller has not kept.

It runs no callbacks of futures, which may wait for others. A Completer does, and waits for one work after the other. If
a work ends out of turn, its future gets a thread of its own.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Protocol

# An error in a callback of a future aborts a process that has begun to end.
process_ends = threading.Event()

_PAUSE_S = 0.005  # between two looks
_PAUSE_MAX_S = 0.02  # after looks at which nothing has moved
_IDLE_PAUSE_S = 0.01  # while there are no works
_IDLE_LOOKS = 50  # without a work, before the thread sleeps until there is one
_OPEN_LOOKS = 16  # works in flight that one look polls: each poll advances all operations


class Unfinished(Protocol):
    """A work in flight."""

    def end_if_over(self, *, unseen: bool = False) -> bool:
        """Ends it without a wait, if it can be ended now. ``unseen``: no caller gets its error from this call."""

    def is_late(self) -> bool:
        """Whether its time is over."""

    def complete_future(self) -> None:
        """Runs the callbacks of its future, unless that has begun."""


class Progress:
    """The works in flight of this process. The thread starts at the first one."""

    def __init__(self) -> None:
        self._works: dict[Unfinished, None] = {}
        self._pending_futures: dict[Unfinished, None] = {}  # they have ended, but not their futures
        self._first = 0  # of the works in flight that the next look polls
        self._asleep = True
        self._wake = threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, work: Unfinished) -> None:
        """Has begun. It is held until discard(), or until its time is over."""
        self._works[work] = None
        if self._asleep:
            self._awake()

    def discard(self, work: Unfinished) -> None:
        """Has ended. Does nothing if it is not known."""
        self._works.pop(work, None)

    def add_pending_future(self, work: Unfinished) -> None:
        """Of work that has ended, but whose future is not complete."""
        self._pending_futures[work] = None
        if self._asleep:
            self._awake()

    def remove_pending_future(self, work: Unfinished) -> None:
        """Its future is complete."""
        if self._pending_futures:
            self._pending_futures.pop(work, None)

    def in_flight(self) -> list[Unfinished]:
        """In the order of their starts."""
        return list(self._works)

    def join(self, patience_s: float) -> None:
        """Waits at most ``patience_s`` seconds for the end of the thread, after process_ends was set."""
        self._wake.set()
        if self._thread is not None:
            self._thread.join(patience_s)

    def _awake(self) -> None:
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="gradbus-progress", daemon=True)
                self._thread.start()
        self._wake.set()

    def _run(self) -> None:
        before: set[Unfinished] = set()
        owed: set[Unfinished] = set()
        pause, idle = _PAUSE_S, 0
        while not process_ends.is_set():
            if not self._works and not self._pending_futures and not before:
                idle += 1
                if idle < _IDLE_LOOKS:
                    time.sleep(_IDLE_PAUSE_S)
                else:
                    self._sleep()
                    idle = 0
                continue
            works = self.in_flight()
            owed = self._pay({work for work in list(self._pending_futures) if work in owed})
            # A work that is new here is likely to be waited for at once.
            moved = self._look([work for work in works if work in before])
            pause = _PAUSE_S if moved or before != set(works) else min(2 * pause, _PAUSE_MAX_S)
            before = set(works)
            idle = 0
            del works
            time.sleep(pause)

    def _look(self, works: list[Unfinished]) -> bool:
        """Polls them from the first one on, until enough are still in flight. Whether one has ended."""
        self._first = self._first if self._first < len(works) else 0
        still_open, ended = 0, False
        for work in works[self._first :] + works[: self._first]:
            if work.end_if_over(unseen=True):
                ended = True
                continue
            if work.is_late():
                self.discard(work)
            still_open += 1
            if still_open == _OPEN_LOOKS:
                self._first += _OPEN_LOOKS
                break
        return ended

    def _pay(self, again: set[Unfinished]) -> set[Unfinished]:
        """Completes futures that were owed at the last look, too. Returns those that are owed now."""
        for work in again:
            if self._pending_futures.pop(work, self) is None:
                threading.Thread(target=work.complete_future, name="gradbus-future", daemon=True).start()
        return set(self._pending_futures)

    def _sleep(self) -> None:
        self._wake.clear()
        self._asleep = True
        if not self._works and not self._pending_futures and not process_ends.is_set():
            self._wake.wait()
        self._asleep = False


progress = Progress()


def _forget_parent() -> None:
    """In a forked process, whose works are the parent's."""
    progress.__init__()  # type: ignore[misc]


os.register_at_fork(after_in_child=_forget_parent)

"""The session of two members of a process group, for their messages. Any thread."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

import torch

from ... import _core
from ..._errors import GradbusError, TimeoutError
from .._completer import Completer
from ._rendezvous import Members, open_session
from ._work import Work

Begin = Callable[[_core.Session], _core.Operation]
Finish = Callable[[_core.Operation], None]
_LOOK_S = 1.0  # between looks for members that have died


class Pair:
    """The session of two members. Opens in a thread; operations begin in the order of their works."""

    def __init__(self, members: Members, peer: int) -> None:
        low, high = sorted((members.rank, peer))
        self.job = f"{members.job}.{low}-{high}"
        self.members = members
        self._rank = int(members.rank > peer)
        self._lock = threading.Lock()
        self._waiting: list[PairWork] = []
        self._session: _core.Session | None = None
        self._closed = False
        self._unclaimed: dict[int, deque[PairWork]] = {}  # receives that have begun for any source, by tag
        self.opened = threading.Event()
        self.error: GradbusError | None = None
        self.completer = Completer(f"gradbus-{self.job}")
        threading.Thread(target=self._open, name=f"gradbus-open-{self.job}", daemon=True).start()

    def _open(self) -> None:
        try:
            session = open_session(self.job, self._rank, 2, self.members.timeout_ms)
            with self._lock:
                waiting, self._waiting = self._waiting, []
                if self._closed:
                    session.close()
                else:
                    self._session = session
                    for work in waiting:
                        work.begin(session)
        except GradbusError as error:
            self.error = error
        self.opened.set()

    def add(self, work: PairWork) -> None:
        """Begins it now, or when the session is open."""
        with self._lock:
            if self._session is None:
                self._waiting.append(work)
            else:
                work.begin(self._session)

    def wait_until_open(self, timeout_ms: int) -> None:
        """Raises TimeoutError, and PeerLostError when a member of the group has died meanwhile."""
        deadline = time.monotonic() + timeout_ms / 1000
        while not self.opened.wait(max(0.0, min(_LOOK_S, deadline - time.monotonic()))):
            if time.monotonic() >= deadline:
                raise TimeoutError(
                    f"GB-P110 OPERATION_TIMEOUT: the other rank of {self.job} has neither sent nor received within "
                    f"{timeout_ms / 1000:g} s | next: see what it does (gradbus status --watch)"
                )
            self.members.check_alive()

    def unclaimed(self, tag: int, make: Callable[[], PairWork]) -> PairWork:
        """The receive that has begun and that nobody has claimed; ``make`` begins one where there is none."""
        with self._lock:
            known = self._unclaimed.setdefault(tag, deque())
            if known:
                return known[0]
            work = make()
            known.append(work)
        self.add(work)
        return work

    def claim(self, tag: int, work: PairWork | None = None) -> PairWork | None:
        """Takes the next unclaimed receive, or ``work`` if it is that one; else None."""
        with self._lock:
            known = self._unclaimed.get(tag)
            if not known or work not in (None, known[0]):
                return None
            return known.popleft()

    def close(self) -> None:
        """Leaves the session."""
        self.completer.close()
        with self._lock:
            session, self._session = self._session, None
            self._closed = True
        if session is not None:
            session.close()


class PairWork(Work):
    """A message."""

    def __init__(
        self, pair: Pair, begin: Begin, finish: Finish | None, outputs: list[torch.Tensor], timeout_ms: int,
        source: int,
    ) -> None:  # fmt: skip
        """``finish``: what is done with a message that was received; ``claim()`` may say it later."""
        super().__init__(None, None, outputs, timeout_ms, pair.completer, source)
        self._done = False
        self._pair = pair
        self._begin = begin
        self._finish_with = finish
        self._failure: GradbusError | None = None

    def begin(self, session: _core.Session) -> None:
        """The pair's session is there."""
        try:
            operation = self._begin(session)
        except GradbusError as error:
            self._failure = error
            return

        def finish() -> None:
            if self._finish_with is not None:
                self._finish_with(operation)

        self._finish = finish
        self._operation = operation

    def deliver(self, outputs: list[torch.Tensor], finish: Finish, timeout_ms: int) -> PairWork:
        """Of a receive that was claimed: where its message goes."""
        self._outputs, self._finish_with = outputs, finish
        self._deadline = time.monotonic() + timeout_ms / 1000
        return self

    def has_ended(self) -> bool:
        """Whether the message is there, or cannot come."""
        return bool(self._pair.error or self._failure) or super()._has_ended()

    _has_ended = has_ended

    def _wait_for_end(self, timeout_ms: int) -> None:
        started = time.monotonic()
        self._pair.wait_until_open(timeout_ms)
        failure = self._pair.error or self._failure
        if failure is not None:
            raise failure
        super()._wait_for_end(max(0, timeout_ms - round((time.monotonic() - started) * 1000)))

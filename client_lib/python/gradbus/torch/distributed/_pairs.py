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
from ._messages import closed_error, for_torch
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
        self.peer = peer
        self.global_ranks = [members.global_ranks[low], members.global_ranks[high]]
        self._rank = int(members.rank > peer)
        self._changed = threading.Condition()  # its lock guards what follows
        self._waiting: list[PairWork] = []
        self._session: _core.Session | None = None
        self._opening = False
        self._closed = False
        self._unclaimed: dict[int, deque[PairWork]] = {}  # receives that have begun for any source, by tag
        self.completer = Completer(f"gradbus-{self.job}")

    def _open(self) -> None:
        """Tries again while a work waits whose time is not over."""
        while True:
            session, failure = None, None
            try:
                timeout_ms = self.members.timeout_ms
                session = open_session(self.job, self._rank, self.global_ranks, timeout_ms, many_threads=True)
            except TimeoutError:
                pass
            except GradbusError as error:
                failure = error
            with self._changed:
                if session is None and failure is None and not self._closed:
                    if not all(work.is_late() for work in self._waiting):
                        continue
                self._opening = False
                self._opened(session, failure)
                return

    def _opened(self, session: _core.Session | None, failure: GradbusError | None) -> None:
        if session is not None and self._closed:
            session.close()
        elif session is not None:
            self._session = session
            for work in self._waiting:
                work.begin(session)
            self._waiting.clear()
        elif failure is not None:
            self._fail(failure)
        self._changed.notify_all()

    def _fail(self, error: GradbusError) -> None:
        for work in self._waiting:
            work.failure = error
        self._waiting.clear()

    def add(self, work: PairWork) -> None:
        """Begins it now, or when the session is open."""
        with self._changed:
            if self._session is not None:
                work.begin(self._session)
            elif self._closed:
                work.failure = closed_error()
            else:
                self._waiting.append(work)
                self._keep_opening()

    def _keep_opening(self) -> None:
        if not self._opening:
            self._opening = True
            threading.Thread(target=self._open, name=f"gradbus-open-{self.job}", daemon=True).start()

    def wait_until_begun(self, work: PairWork, timeout_ms: int) -> None:
        """Raises TimeoutError, PeerLostError when a member has died or the other one has left, and why it failed."""
        deadline = time.monotonic() + timeout_ms / 1000
        while not work.has_begun():
            with self._changed:
                if work in self._waiting:
                    self._keep_opening()
                pause = max(0.0, min(_LOOK_S, deadline - time.monotonic()))
                begun = self._changed.wait_for(work.has_begun, pause)
            if begun:
                break
            if time.monotonic() >= deadline:
                raise TimeoutError(
                    f"GB-P110 STALLED: {self.members.name_of(self.peer)} has neither sent nor received within "
                    f"{timeout_ms / 1000:g} s | next: see what it does (gradbus status --watch)"
                )
            self.members.check_alive()
            self.members.check_present(self.peer)
        if work.failure is not None:
            raise work.failure

    def is_open(self) -> bool:
        """Whether the other member has come."""
        return self._session is not None

    def unclaimed(self, tag: int, make: Callable[[], PairWork]) -> PairWork:
        """The receive that has begun and that nobody has claimed; ``make`` begins one where there is none."""
        with self._changed:
            known = self._unclaimed.setdefault(tag, deque())
            if known:
                return known[0]
            work = make()
            known.append(work)
        self.add(work)
        return work

    def claim(self, tag: int, work: PairWork | None = None) -> PairWork | None:
        """Takes the next unclaimed receive, or ``work`` if it is that one; else None."""
        with self._changed:
            known = self._unclaimed.get(tag)
            if not known or work not in (None, known[0]):
                return None
            return known.popleft()

    def close(self) -> None:
        """Leaves the session. Works in flight fail."""
        with self._changed:
            session, self._session = self._session, None
            self._closed = True
            self._fail(closed_error())
            self._changed.notify_all()
        if session is not None:
            session.close()
        self.completer.close()


class PairWork(Work):
    """A message."""

    is_collective = False

    def __init__(self, pair: Pair, begin: Begin, timeout_ms: int, source: int) -> None:
        """Of a message that is received, deliver() says where it goes."""
        super().__init__(pair.members, None, None, [], timeout_ms, pair.completer)
        self._done = False
        self._source = source
        self._pair = pair
        self._begin = begin
        self._finish_with: Finish | None = None
        self._is_claimed = source < 0
        self.failure: GradbusError | None = None

    def begin(self, session: _core.Session) -> None:
        """The pair's session is there."""
        try:
            operation = self._begin(session)
        except GradbusError as error:
            self.failure = for_torch(error, self._ranks())
            return

        def finish() -> None:
            if self._finish_with is not None:
                self._finish_with(operation)

        self._finish = finish
        self._operation = operation

    def has_begun(self) -> bool:
        """Whether its operation has, or cannot."""
        return self._operation is not None or self.failure is not None or self._done

    def deliver(self, outputs: list[torch.Tensor], finish: Finish, timeout_ms: int) -> PairWork:
        """Of a receive that was claimed: where its message goes."""
        self._outputs, self._finish_with = outputs, finish
        self._deadline = time.monotonic() + timeout_ms / 1000
        self._is_claimed = True
        return self

    def is_late(self) -> bool:
        """A receive that nobody has claimed is never late."""
        return self._is_claimed and super().is_late()

    def has_ended(self) -> bool:
        """Whether the message is there, or cannot come."""
        return self.failure is not None or super()._has_ended()

    _has_ended = has_ended

    def _wait_for_end(self, timeout_ms: int) -> None:
        started = time.monotonic()
        self._pair.wait_until_begun(self, timeout_ms)
        super()._wait_for_end(max(0, timeout_ms - round((time.monotonic() - started) * 1000)))

    def _ranks(self) -> list[int]:
        return self._pair.global_ranks

"""send and recv of torch.distributed. Any thread.

Two members that exchange messages share a session of their own, which both open in the background at their first
message. A message is a gather to the receiver, to which the receiver brings nothing. So its size may be anything, and
messages of one direction and tag arrive in the order in which they were sent.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import torch

from ... import _core
from ..._errors import GradbusError, TimeoutError, bad_argument
from ..._parts import Collective
from .._completer import Completer
from ._rendezvous import Members, open_session
from ._starting import Starting
from ._wire import host_input, host_output, put_back
from ._work import Work

Begin = Callable[[_core.Session], _core.Operation]


class Pair:
    """The session of two members. Opens in a thread; operations begin in the order of their works."""

    def __init__(self, members: Members, peer: int) -> None:
        low, high = sorted((members.rank, peer))
        self.job = f"{members.job}.{low}-{high}"
        self._rank = int(members.rank > peer)
        self._timeout_ms = members.timeout_ms
        self._lock = threading.Lock()
        self._waiting: list[PairWork] = []
        self._session: _core.Session | None = None
        self.opened = threading.Event()
        self.error: GradbusError | None = None
        self.completer = Completer(f"gradbus-{self.job}")
        threading.Thread(target=self._open, name=f"gradbus-open-{self.job}", daemon=True).start()

    def _open(self) -> None:
        try:
            session = open_session(self.job, self._rank, 2, self._timeout_ms)
            with self._lock:
                self._session = session
                waiting, self._waiting = self._waiting, []
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

    def close(self) -> None:
        """Leaves the session."""
        self.completer.close()
        with self._lock:
            session, self._session = self._session, None
        if session is not None:
            session.close()


class PairWork(Work):
    """A message."""

    def __init__(
        self, pair: Pair, begin: Begin, finish: Callable[[_core.Operation], None] | None,
        outputs: list[torch.Tensor], timeout_ms: int, source: int,
    ) -> None:  # fmt: skip
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
        finish = self._finish_with
        self._finish = None if finish is None else lambda: finish(operation)
        self._operation = operation

    def _has_ended(self) -> bool:
        return bool(self._pair.error or self._failure) or super()._has_ended()

    def _wait_for_end(self, timeout_ms: int) -> None:
        started = time.monotonic()
        if not self._pair.opened.wait(timeout_ms / 1000):
            raise TimeoutError(
                f"GB-P110 OPERATION_TIMEOUT: the other rank of {self._pair.job} has neither sent nor received within "
                f"{timeout_ms / 1000:g} s | next: see what it does (gradbus status --watch)"
            )
        failure = self._pair.error or self._failure
        if failure is not None:
            raise failure
        super()._wait_for_end(max(0, timeout_ms - round((time.monotonic() - started) * 1000)))


class PointToPoint(Starting):
    """A part of a process group."""

    def _pair(self, peer: int, verb: str) -> Pair:
        if not 0 <= peer < self.members.size or peer == self.members.rank:
            raise bad_argument(f"{verb}: rank {peer}", f"pass another rank of the group, below {self.members.size}")
        pairs: dict[int, Pair] = self.__dict__.setdefault("_pairs", {})
        if peer not in pairs:
            pairs[peer] = Pair(self.members, peer)
        return pairs[peer]

    def close_pairs(self) -> None:
        """Leaves all of them."""
        for pair in self.__dict__.pop("_pairs", {}).values():
            pair.close()

    def send(self, tensors: Any, destination: int, tag: int = 0) -> Work:
        """Ends when the receiver has begun to receive, or before."""
        tensor = self.one(tensors, "send")
        pair = self._pair(destination, "send")
        host = host_input(tensor, "send")
        return self._message(pair, destination, tag, host, [], None, -1)

    def recv(self, tensors: Any, source: int, tag: int = 0) -> Work:
        """A message of the size of the tensor."""
        tensor = self.one(tensors, "recv")
        pair = self._pair(source, "recv")
        result = host_output(tensor, "recv")

        def finish(operation: _core.Operation) -> None:
            _check_size(sum(operation.counts()), result, self.members.name_of(source), tag)
            if result.numel():
                operation.copy_output(result.view(-1).view(torch.uint8))
            put_back(result, tensor)

        nothing = torch.empty(0, dtype=torch.uint8)
        return self._message(pair, self.members.rank, tag, nothing, [tensor], finish, source)

    def _message(
        self, pair: Pair, receiver: int, tag: int, payload: torch.Tensor, outputs: list[torch.Tensor],
        finish: Callable[[_core.Operation], None] | None, source: int,
    ) -> Work:  # fmt: skip
        self.sequence += 1
        root = int(receiver > (self.members.rank if receiver != self.members.rank else source))
        flat = payload.as_strided((payload.numel(),), (1,)).view(torch.uint8)
        request = _core.Request(Collective.GATHER, f"message to {root} tag {tag}", flat, root=root)
        work = PairWork(pair, lambda session: session.start([request], True), finish, outputs,
                        self.members.timeout_ms, source)  # fmt: skip
        pair.add(work)
        return work

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Work:
        """Refused: members talk in pairs."""
        raise bad_argument("recv: from any source", "name the source: dist.recv(tensor, src=RANK)")


def _check_size(received: int, result: torch.Tensor, sender: str, tag: int) -> None:
    wanted = result.numel() * result.element_size()
    if received != wanted:
        raise bad_argument(
            f"recv: {sender} sent {received} bytes with tag {tag}, the tensor has {wanted}",
            "receive into a tensor of the size and dtype that was sent",
        )

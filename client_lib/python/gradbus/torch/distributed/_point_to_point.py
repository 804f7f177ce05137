"""send and recv of torch.distributed. Any thread.

Two members that exchange messages share a session of their own, which both open in the background at their first
message. A message is a gather to the receiver, to which the receiver brings nothing. So its size may be anything, and
messages of one direction and tag arrive in the order in which they were sent.

A receive from any source begins a receive from each member. The first message is the one that is taken. The other
receives stay for later calls.
"""

from __future__ import annotations

import contextlib
import threading
import time
from functools import partial
from typing import Any

import torch

from ... import _core
from ..._errors import GradbusError, InvalidError, PeerLostError, TimeoutError, bad_argument
from ..._parts import Collective
from ._messages import closed_error
from ._pairs import Finish, Pair, PairWork
from ._progress import progress
from ._starting import Starting
from ._wire import host_input, host_output, put_back
from ._work import Work

_making = threading.Lock()
_LOOK_S = 1.0  # between looks for members that have died
_PAUSE_MAX_S = 0.002  # between looks for a message of any source


class PointToPoint(Starting):
    """A part of a process group."""

    def pair(self, peer: int, verb: str) -> Pair:
        """With another member."""
        self.members.check_process()
        if not 0 <= peer < self.members.size or peer == self.members.rank:
            raise bad_argument(f"{verb}: rank {peer}", f"pass another rank of the group, below {self.members.size}")
        with _making:
            if self.members.has_left:
                raise closed_error()
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
        pair = self.pair(destination, "send")
        work = self._message(pair, destination, tag, host_input(tensor, "send"), -1)
        progress.add(work)
        pair.add(work)
        return work

    def recv(self, tensors: Any, source: int, tag: int = 0) -> Work:
        """A message of the size of the tensor."""
        tensor = self.one(tensors, "recv")
        pair = self.pair(source, "recv")
        finish = self.receiver(tensor, source, tag)
        claimed = pair.claim(tag)
        work = claimed or self.receive(pair, source, tag)
        work.deliver([tensor], finish, self.members.timeout_ms)
        progress.add(work)
        if claimed is None:
            pair.add(work)
        return work

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Work:
        """The next message of any member; ``source_rank()`` says whose it was."""
        tensor = self.one(tensors, "recv")
        if self.members.size == 1:
            raise bad_argument("recv: a group of one rank has no other", "call it in groups of two or more")
        return AnySourceWork(self, tensor, tag)

    def receive(self, pair: Pair, source: int, tag: int) -> PairWork:
        """A message that has no tensor yet. It begins when it is added to the pair."""
        nothing = torch.empty(0, dtype=torch.uint8, device="cpu")
        return self._message(pair, self.members.rank, tag, nothing, source)

    def receiver(self, tensor: torch.Tensor, source: int, tag: int) -> Finish:
        """Puts a message into the tensor."""
        result = host_output(tensor, "recv")

        def finish(operation: _core.Operation) -> None:
            _check_size(sum(operation.counts()), result, self.members.name_of(source), tag)
            if result.numel():
                operation.copy_output(result.view(-1).view(torch.uint8))
            put_back(result, tensor)

        return finish

    def _message(self, pair: Pair, receiver: int, tag: int, payload: torch.Tensor, source: int) -> PairWork:
        self.sequence += 1
        known = self.members.global_ranks[receiver]
        flat = payload.as_strided((payload.numel(),), (1,)).view(torch.uint8)
        name = f"message to global rank {known} tag {tag}"
        request = _core.Request(Collective.GATHER, name, flat, root=int(receiver == max(pair.peer, self.members.rank)))
        return PairWork(pair, lambda session: session.start([request], True), self.members.timeout_ms, source)


class AnySourceWork(Work):
    """A receive from any member. The thread of _progress.py ends it for its future."""

    is_collective = False

    def __init__(self, group: PointToPoint, tensor: torch.Tensor, tag: int) -> None:
        super().__init__(group.members, None, None, [tensor], group.members.timeout_ms)
        host_output(tensor, "recv")  # raises what is wrong with the tensor
        self._done = False
        self._group = group
        self._tensor = tensor
        self._tag = tag
        members = group.members
        self._peers = [peer for peer in range(members.size) if peer != members.rank]
        self._lost: dict[int, GradbusError] = {}
        self._taken = False
        self._failure: GradbusError | None = None
        with contextlib.suppress(GradbusError):
            self._has_ended()
        progress.add(self)

    def _has_ended(self) -> bool:
        if not self._taken and self._failure is None:
            try:
                self._taken = any(self._take(peer) for peer in self._peers if peer not in self._lost)
            except GradbusError as error:
                self._failure = error
            if len(self._lost) == len(self._peers):
                self._failure = next(iter(self._lost.values()))
        return self._taken or self._failure is not None

    def _take(self, peer: int) -> bool:
        """Whether this member's message was there. A member that has left sends no more; the others may."""
        group, tag = self._group, self._tag
        pair = group.pair(peer, "recv")
        work = pair.unclaimed(tag, partial(group.receive, pair, peer, tag))
        if not work.has_ended() or pair.claim(tag, work) is None:
            return False
        timeout_ms = self._left_ms()
        try:
            work.deliver([self._tensor], group.receiver(self._tensor, peer, tag), timeout_ms).complete(timeout_ms)
        except InvalidError:
            raise
        except GradbusError as error:
            self._lost[peer] = error
            return False
        self._source = peer
        return True

    def _wait_for_end(self, timeout_ms: int) -> None:
        deadline, pause = time.monotonic() + timeout_ms / 1000, 0.00005
        look = time.monotonic() + _LOOK_S
        while not self._has_ended():
            if time.monotonic() >= deadline:
                raise TimeoutError(
                    f"GB-P110 STALLED: recv: no rank has sent a message with tag {self._tag} within "
                    f"{timeout_ms / 1000:g} s | next: see what they do (gradbus status --watch)"
                )
            if time.monotonic() >= look:
                self._group.members.check_alive()
                self._look_for_left()
                look = time.monotonic() + _LOOK_S
            time.sleep(pause)
            pause = min(2 * pause, _PAUSE_MAX_S)
        if self._failure is not None:
            raise self._failure


    def _look_for_left(self) -> None:
        """A member that has left before its first message sends none."""
        for peer in self._peers:
            if peer not in self._lost and not self._group.pair(peer, "recv").is_open():
                try:
                    self._group.members.check_present(peer)
                except PeerLostError as error:
                    self._lost[peer] = error


def _check_size(received: int, result: torch.Tensor, sender: str, tag: int) -> None:
    wanted = result.numel() * result.element_size()
    if received != wanted:
        raise bad_argument(
            f"recv: {sender} sent {received} bytes with tag {tag}, the tensor has {wanted}",
            "receive into a tensor of the size and dtype that was sent",
        )

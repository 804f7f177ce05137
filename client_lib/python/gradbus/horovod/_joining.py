"""join(): a rank that has no more data adds zeros to the sums of the others until all have joined.

Nothing is negotiated before an operation, so a rank that joined must learn what the others start. They tell it when
they are stuck: a rank that has waited for some milliseconds takes part in a *meeting*, and a rank that joined takes
part in every one. A meeting is an all-gather, so it takes place once every rank has joined or is stuck, which is when
nobody could go on otherwise. Ranks that are never stuck, and jobs without join(), send nothing.

To a meeting a rank brings the operations that it has in flight. A rank that joined starts those that it has not
started itself: it counts the operations of each name, or of each kind if they have none, and so do the others.

Sums get zeros. What Horovod refuses while a rank has joined (all-gather, broadcast, ...) is ended as well, with
no rows or with zeros, and then raises an error on all ranks that called it. So that they know, a rank that joined
starts such an operation only if it was brought to a meeting after the one in which the others learned of its join.
"""

from __future__ import annotations

import json
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from .. import _core
from .._errors import GradbusError, MismatchError, TimeoutError
from .._parts import Collective
from .._watch import Replay

_STUCK_MS = 20  # a wait of this length brings a rank to a meeting
_STUCK_AFTER_JOIN_MS = 1  # once a rank has joined
# Meetings of one wait become rare: while nothing else moves, the coordinator finds out which ranks cannot go on.
_PAUSE_MAX_S = 4.0
_KEPT_MAX = 1024  # operations that nobody has waited for are kept up to this number before a search
_NAME = "gradbus.join"
_ADDS_ZEROS = (Collective.ALLREDUCE, Collective.REDUCE)


class Zeros(Protocol):
    """A part in an operation that a rank that joined has started."""

    def poll(self) -> bool:
        """It is over."""

    def wait(self, timeout_ms: int | None = None) -> object:
        """Ends it."""


class Rounds(Protocol):
    """The exchanges of an optimizer, which are matched by their number."""

    def refuse_join(self) -> None:
        """Raises InvalidError in a mode in which every rank makes the same number of steps."""

    def settle(self) -> None:
        """Ends what this rank has put off, and an exchange that no step has used."""

    def in_flight(self) -> int | None:
        """The number of the one that this rank waits for."""

    def number(self) -> int:
        """Of the newest one that this rank has taken part in; 0: none."""

    def with_zeros(self, number: int) -> Zeros | None:
        """Takes part with zeros in the next one, up to that number. None: it has done so already."""

    def all_joined(self) -> None:
        """Every rank makes steps again."""


class _Pending(NamedTuple):
    replay: Replay
    operation: _core.Operation


class _Join(NamedTuple):
    """What a rank that has joined brings to each meeting."""

    joined: int | None  # the meeting to which it brings this first; None: it has not joined
    time: float
    done: dict[int, int]  # as it joined: operations that cannot take zeros, by key
    exchanges: list[int]  # as it joined: of each optimizer


class _Refused(NamedTuple):
    operation: _core.Operation  # kept, so that its id stays its own
    error: MismatchError


def _key(replay: Replay) -> str:
    """Operations of one key are matched in their order."""
    if replay.name is not None:
        return f"{int(replay.collective)}:{replay.name}"
    rows_vary = replay.collective in (Collective.ALLGATHER, Collective.GATHER, Collective.ALLTOALL)
    shape = replay.shape[1:] if rows_vary else replay.shape
    return f"{int(replay.collective)}|{replay.dtype}|{list(shape)}|{replay.op}|{replay.root}"


def _adds_zeros(key: str) -> bool:
    return any(key.startswith((f"{int(kind)}:", f"{int(kind)}|")) for kind in _ADDS_ZEROS)


class Joining:
    """What one rank knows of who has joined. One for a session; any thread may wait."""

    def __init__(
        self, session: _core.Session, start_with_zeros: Callable[[Replay], Zeros], rounds: list[Rounds]
    ) -> None:
        """Collective, so that the first meeting needs no registration later."""
        self.session = session
        self._start_with_zeros = start_with_zeros
        self._lock = threading.RLock()
        self._counts: dict[str, int] = {}
        self._pending: dict[tuple[str, int], _Pending] = {}
        self._key_of: dict[int, list[tuple[str, int]]] = {}
        self._refused: dict[int, _Refused] = {}  # by id of the operation: nobody has waited for it so far
        self.rounds = rounds
        self._meeting: _core.Operation | None = None
        self._meetings = 0
        self._own: _Join | None = None  # of this rank, while it has joined
        self._joined: dict[int, dict[str, Any]] = {}  # by rank: what it brought to its first meeting after its join
        self._last: int | None = None
        self._zeros: list[Zeros] = []
        self._exchanges: list[int] = []  # of each of rounds: the most of any rank, once all have joined
        self._begin_meeting()
        self._end_meeting(block=True)

    # ---- what this rank does

    def started(self, parts: Sequence[Replay], operation: _core.Operation) -> None:
        """An operation of this rank."""
        with self._lock:
            if len(self._pending) >= _KEPT_MAX:
                self._forget_ended()
            numbers = []
            for replay in parts:
                key = _key(replay)
                number = self._counts.get(key, 0)
                self._counts[key] = number + 1
                self._pending[key, number] = _Pending(replay, operation)
                numbers.append((key, number))
            if numbers:
                self._key_of[id(operation)] = numbers

    def _forget_ended(self) -> None:
        """Whoever waits for one of them later still gets its error."""
        for places in list(self._key_of.values()):
            operation = self._pending[places[0]].operation
            if _is_over(operation):
                self._note_refusal(operation, self._take_out(operation))

    def _note_refusal(self, operation: _core.Operation, ended: Sequence[tuple[tuple[str, int], Replay]]) -> None:
        error = self._refusal(ended)
        if error is not None:
            self._refused[id(operation)] = _Refused(operation, error)

    def wait(self, waitable: _core.Operation | _core.Bucket, timeout_ms: int | None) -> None:
        """As waitable.wait(), and tells ranks that joined what this one waits for.

        Raises MismatchError if a rank that joined took part in an operation that cannot do without it.
        """
        limit_ms = self.session.op_timeout_ms if timeout_ms is None else timeout_ms
        deadline = time.monotonic() + limit_ms / 1000
        pause_s, meets_at = 0.0, 0.0
        while True:
            left_ms = max(0, round(1000 * (deadline - time.monotonic())))
            slice_ms = _STUCK_AFTER_JOIN_MS if self._joined else _STUCK_MS
            try:
                waitable.wait(min(left_ms, slice_ms))
                break
            except TimeoutError:
                if left_ms <= slice_ms:
                    raise
                if self._joined or time.monotonic() >= meets_at:
                    met = self._meetings
                    self._meet()
                    if self._meetings != met:
                        pause_s = min(_PAUSE_MAX_S, 2 * pause_s or _STUCK_MS / 1000)
                        meets_at = time.monotonic() + pause_s
            except GradbusError:
                self._end(waitable)
                raise
        refused = self._end(waitable)
        if refused is not None:
            raise refused

    def _end(self, waitable: object) -> MismatchError | None:
        with self._lock:
            error = self._refusal(self._take_out(waitable))
            noted = self._refused.pop(id(waitable), None)
            return noted.error if noted is not None else error

    def _take_out(self, waitable: object) -> list[tuple[tuple[str, int], Replay]]:
        with self._lock:
            return [(place, self._pending.pop(place).replay) for place in self._key_of.pop(id(waitable), [])]

    def _refusal(self, operation: Sequence[tuple[tuple[str, int], Replay]]) -> MismatchError | None:
        """The error of an operation, if a rank that joined takes part in it and it cannot do without that rank."""
        for (key, number), replay in operation:
            if replay.collective in _ADDS_ZEROS:
                continue
            absent = [rank for rank, brought in self._joined.items() if brought["done"].get(_hash(key), 0) <= number]
            if absent:
                return _cannot_join(replay, absent)
        return None

    # ---- meetings

    def _meet(self) -> None:
        """Begins a meeting, or ends the one that this rank has begun if all have come. Never blocks."""
        with self._lock:
            if self._meeting is None:
                self._begin_meeting()
            elif self._meeting.poll():
                self._end_meeting()

    def _begin_meeting(self) -> None:
        self._forget_ended()
        pending = [[key, number, list(one.replay)] for (key, number), one in self._pending.items()]
        rounds = [[index, rounds.in_flight()] for index, rounds in enumerate(self.rounds)]
        own = self._own or _Join(None, 0.0, {}, [])
        brought = {
            **own._asdict(),
            "pending": pending,
            "rounds": [pair for pair in rounds if pair[1] is not None],
        }
        text = bytearray(json.dumps(brought).encode())
        self._meeting = self.session.start([_core.Request(Collective.ALLGATHER, _NAME, text)])

    def _end_meeting(self, block: bool = False) -> None:
        assert self._meeting is not None
        self._meeting.wait(None if block else 0)
        counts = self._meeting.counts()
        body = bytearray(sum(counts))
        self._meeting.copy_output(body)
        self._meeting = None
        brought, start = [], 0
        for count in counts:
            brought.append(json.loads(bytes(body[start : start + count])))
            start += count
        self._learn(brought)
        self._meetings += 1

    def _learn(self, brought: Sequence[dict[str, Any]]) -> None:
        knew = set(self._joined)
        for rank, one in enumerate(brought):
            if one["joined"] is not None:
                self._joined.setdefault(rank, {**one, "done": {int(key): n for key, n in one["done"].items()}})
        if self._own is not None:
            for one in brought:
                self._take_part(one, others_knew=self.session.rank in knew)
        if len(self._joined) == self.session.size:
            self._last = max(self._joined, key=self._time_of_join)
            self._exchanges = [max(numbers) for numbers in zip(*(one["exchanges"] for one in self._joined.values()))]
            for places in self._key_of.values():  # those that this rank started before its own join
                parts = [(place, self._pending[place]) for place in places]
                self._note_refusal(parts[0][1].operation, [(place, one.replay) for place, one in parts])
            self._joined.clear()

    def _time_of_join(self, rank: int) -> tuple[int, int, float, int]:
        """Clocks of nodes differ, so they only decide between ranks of one meeting.

        Where exchanges have a delay, a rank may join late after fewer of them: it is not the last one.
        """
        one = self._joined[rank]
        return (sum(one["exchanges"]), one["joined"], one["time"], rank)

    # ---- a rank that joined

    def _take_part(self, brought: dict[str, Any], others_knew: bool) -> None:
        for key, number, fields in brought["pending"]:
            replay = Replay(*fields)._replace(shape=tuple(fields[3]))
            is_new = self._counts.get(key, 0) <= number
            if is_new and (others_knew or replay.collective in _ADDS_ZEROS):
                self._zeros.append(self._start_with_zeros(replay))
        for index, number in brought["rounds"]:
            zeros = self.rounds[index].with_zeros(number) if index < len(self.rounds) else None
            if zeros is not None:
                self._zeros.append(zeros)

    def join(self) -> int:
        """Takes part with zeros until every rank has joined. Returns the rank that joined last."""
        for rounds in self.rounds:
            rounds.refuse_join()
        for rounds in self.rounds:
            rounds.settle()
        with self._lock:
            self._last = None
            self._own = _Join(
                self._meetings + (self._meeting is not None), time.time(),
                {_hash(key): n for key, n in self._counts.items() if not _adds_zeros(key)},
                [rounds.number() for rounds in self.rounds],
            )  # fmt: skip
        progress, deadline = None, 0.0
        while self._last is None:
            self._meet()
            self._end_zeros()
            if progress != (self._meetings, len(self._zeros)):  # the limit is for one operation of the others
                progress = (self._meetings, len(self._zeros))
                deadline = time.monotonic() + self.session.op_timeout_ms / 1000
            self._wait_for_meeting(deadline)
        self._own = None
        for zeros in self._zeros:
            _end_one(zeros)
        self._zeros.clear()
        for rounds, number in zip(self.rounds, self._exchanges):
            _catch_up(rounds, number)
        for rounds in self.rounds:
            rounds.all_joined()
        return self._last

    def _wait_for_meeting(self, deadline: float) -> None:
        meeting = self._meeting
        if meeting is None:
            return
        try:
            meeting.wait(1 if self._zeros else _STUCK_MS)
        except TimeoutError:
            if time.monotonic() > deadline:
                raise

    def _end_zeros(self) -> None:
        going_on = []
        for zeros in self._zeros:
            if _is_over(zeros):
                _end_one(zeros)
            else:
                going_on.append(zeros)
        self._zeros = going_on


def _catch_up(rounds: Rounds, number: int) -> None:
    """Where exchanges have a delay, nobody has waited for the last ones: every rank takes part in them, too."""
    while (zeros := rounds.with_zeros(number)) is not None:
        _end_one(zeros)


def _end_one(zeros: Zeros) -> None:
    try:
        zeros.wait()
    except MismatchError:
        pass  # the ranks that called it have it, too


def _is_over(operation: Any) -> bool:
    try:
        return bool(operation.poll())
    except GradbusError:
        return True


def _hash(key: str) -> int:
    return zlib.crc32(key.encode())


def _cannot_join(replay: Replay, absent: Sequence[int]) -> MismatchError:
    verb = Collective(replay.collective).name.lower()
    who = f"rank {absent[0]} has" if len(absent) == 1 else f"ranks {', '.join(map(str, absent))} have"
    return MismatchError(
        f"GB-O902 TENSOR_MISMATCH: {verb} of {'a tensor' if replay.name is None else repr(replay.name)}: {who} called "
        "join(), and only sums and means can do without a rank | next: call it before any rank joins, or after all have"
    )

"""Ranks agree on the name of a new job through a store of torch, which may hold words of ranks long dead. Any thread.

Rank 0 makes a name that is new, and calls with it. Every other rank answers the latest call with a number of its own,
which is new as well. When all have answered, rank 0 confirms their numbers, and all join the job. An attempt that
failed may have left a call, answers and confirmations. They do no harm: a number of now was not confirmed then, and a
name of now was not answered then.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Any

from .._errors import TimeoutError

_CALL = "gradbus/call"
# A rank that waits looks again after a part of the time that it has waited. So it is never late by more than that
# part, and a store with many ranks is not kept busy. (Store.wait() writes to stderr when its time is over.)
_PAUSE_PART = 0.1
_PAUSE_MIN_S = 0.0002
_PAUSE_MAX_S = 0.1
_LISTED_MAX = 8


def agree(store: Any, rank: int, size: int, timeout_ms: int, new_name: Callable[[], str], calls: str) -> str:
    """The name that rank 0 has made now; waits until all ranks are here. Raises TimeoutError, which names the missing.

    ``calls``: what a missing rank should have called, for the message.
    """
    job = new_name() if rank == 0 else ""
    part = _Part(store, rank, size, timeout_ms / 1000)
    try:
        agreed = part.lead(job) if rank == 0 else part.follow()
        missing = [] if agreed else part.missing()
    except RuntimeError as error:
        raise TimeoutError(
            f"GB-J404 START_TIMEOUT: the store in which rank {rank} of {size} waited for the others does not answer "
            f"({type(error).__name__}) | next: see why rank 0, or the launcher's process with the store, has ended"
        ) from error
    if agreed:
        return agreed
    raise TimeoutError(
        f"GB-J404 START_TIMEOUT: rank {rank} of {size} waited {timeout_ms / 1000:g} s for {_listed(missing)} | next: "
        f"see why no {calls} came from there"
    )


class _Part:
    """What one rank does in it."""

    def __init__(self, store: Any, rank: int, size: int, timeout_s: float) -> None:
        self._store = store
        self._rank = rank
        self._size = size
        self._timeout_s = timeout_s
        self._call = ""  # the latest

    def lead(self, job: str) -> str:
        """As rank 0. "" when the others did not answer in time."""
        self._call = job
        self._store.set(_CALL, job)
        answers = [self._answer(rank) for rank in range(1, self._size)]
        if not self._wait_until(lambda: self._store.check(answers)):
            return ""
        numbers = self._store.multi_get(answers)
        self._store.multi_set([_confirmation(number.decode()) for number in numbers], [job] * len(numbers))
        return job

    def follow(self) -> str:
        """As another rank. "" when rank 0 did not confirm in time."""
        number = secrets.token_hex(8)
        confirmation = _confirmation(number)

        def is_confirmed() -> bool:
            self._answer_latest(number)
            return bool(self._store.check([confirmation]))

        return self._store.get(confirmation).decode() if self._wait_until(is_confirmed) else ""

    def missing(self) -> list[int]:
        """Who did not answer. If all have, it was a call of the past, and rank 0 is missing."""
        if not self._call:
            return [0]
        return [rank for rank in range(1, self._size) if not self._store.check([self._answer(rank)])] or [0]

    def _answer_latest(self, number: str) -> None:
        if not self._call and not self._store.check([_CALL]):
            return
        latest = self._store.get(_CALL).decode()
        if latest != self._call:
            self._call = latest
            self._store.set(self._answer(self._rank), number)

    def _answer(self, rank: int) -> str:
        return f"gradbus/answer/{self._call}/{rank}"

    def _wait_until(self, is_so: Callable[[], bool]) -> bool:
        """False when the time is over."""
        start = time.monotonic()
        while not is_so():
            waited = time.monotonic() - start
            if waited >= self._timeout_s:
                return False
            time.sleep(min(max(waited * _PAUSE_PART, _PAUSE_MIN_S), _PAUSE_MAX_S))
        return True


def _confirmation(number: str) -> str:
    return f"gradbus/confirmed/{number}"


def _listed(ranks: list[int]) -> str:
    text = ", ".join(map(str, ranks[:_LISTED_MAX])) + ", ..." * (len(ranks) > _LISTED_MAX)
    return f"rank{'s' * (len(ranks) > 1)} {text}"

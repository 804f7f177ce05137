"""Exchanges of which one at a time is made, and none after one that this rank gave up."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from .._errors import BusyError


class ExchangeGuard:
    """What a front end exchanges again and again. Other ranks may go on with what this one gave up."""

    def __init__(self, what: str, next_step: str) -> None:
        """``what``: is given up; ``next_step``: what the user does then, after "on all ranks"."""
        self._what = what
        self._next_step = next_step
        self._given_up = ""  # why, from the first start of an exchange to its end
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Of one thread. Raises BusyError after an exchange that was given up."""
        with self._lock:
            if self._given_up:
                raise BusyError(
                    f"GB-O905 IN_FLIGHT: {self._what} ({self._given_up}); others may have gone on | next: on all "
                    f"ranks, {self._next_step}, or restart the job"
                )
            yield

    @contextlib.contextmanager
    def exchange(self) -> Iterator[None]:
        """Within a turn. Any error gives it up."""
        self._given_up = "interrupted"
        try:
            yield
        except BaseException as error:
            self._given_up = f"{type(error).__name__} {getattr(error, 'id', '')}".rstrip()
            raise
        self._given_up = ""

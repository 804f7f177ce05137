"""A thread that waits for what is in flight, in the name of futures, and runs their callbacks."""

from __future__ import annotations

import os
import queue
import threading
from typing import Protocol


class InFlight(Protocol):
    """An operation, or several."""

    def complete_for_future(self) -> None:
        """Waits for its end, good or bad, and completes its future. Raises nothing."""


class Completer:
    """Waits in the order given. The thread starts at the first one. Any thread."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._works: queue.SimpleQueue[InFlight | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._thread_id: int | None = 0
        self._pid = 0

    def add(self, work: InFlight) -> None:
        """Has the work completed: at once, if a callback asks for it, because it may wait for the future."""
        if threading.get_ident() == self._thread_id:
            work.complete_for_future()
            return
        with self._lock:
            if self._thread is None or self._pid != os.getpid():
                self._works = queue.SimpleQueue()
                self._thread = threading.Thread(
                    target=_complete_all, args=(self._works,), name=self._name, daemon=True
                )
                self._pid = os.getpid()
                self._thread.start()
                self._thread_id = self._thread.ident
        self._works.put(work)

    def close(self, patience_s: float = 0.0) -> None:
        """Ends the thread after the works that it has; waits for its end so long."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None and self._pid == os.getpid():
            self._works.put(None)
            thread.join(patience_s)


def _complete_all(works: queue.SimpleQueue[InFlight | None]) -> None:
    while (work := works.get()) is not None:
        work.complete_for_future()
        del work

"""Who is told of the operations among all ranks: nobody, or what makes join() possible (horovod/_joining.py).

This module exists so that operations need not import join(), which starts operations itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from . import _core


class Replay(NamedTuple):
    """What another rank must know to take part in an operation with zeros, or with no rows. JSON can say it."""

    collective: int
    name: str | None
    dtype: str
    shape: tuple[int, ...]
    op: int = 1
    prescale: float = 1.0
    postscale: float = 1.0
    root: int = 0
    compression: str | None = None


class Watcher(Protocol):
    """Of the operations of one session."""

    session: _core.Session

    def started(self, parts: Sequence[Replay], operation: _core.Operation) -> None:
        """This rank takes part in it."""

    def wait(self, waitable: _core.Operation | _core.Bucket, timeout_ms: int | None) -> None:
        """As waitable.wait()."""


watcher: Watcher | None = None


def watch(new: Watcher | None) -> None:
    """From now on this one is told."""
    global watcher
    watcher = new


def is_watched(session: _core.Session) -> bool:
    """Ranks of this session may join."""
    return watcher is not None and watcher.session is session


def tell_start(
    session: _core.Session, parts: Callable[[], Sequence[Replay | None]], operation: _core.Operation
) -> None:
    """An operation of this session was started."""
    if watcher is not None and is_watched(session):
        watcher.started([part for part in parts() if part is not None], operation)


def wait_for(waitable: _core.Operation | _core.Bucket, timeout_ms: int | None = None) -> None:
    """Waits as the session's join() needs it."""
    if watcher is None:
        waitable.wait(timeout_ms)
    else:
        watcher.wait(waitable, timeout_ms)

"""Modes that change while the job runs (`gradbus mode JOB GROUP MODE`), taken up at fences.

The list is one for all optimizers of the process: each takes up at its own fences what is new to it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from ... import _core
from ..._errors import bad_argument
from ..._session import before_close, current

FENCE_EVERY = "GRADBUS_FENCE_EVERY"
_PLACEMENT = "placement="

ModeChange = tuple[str, str]  # glob of parameters' names, mode

_asked: list[ModeChange] = []  # of this session, oldest first


def at_fence() -> Sequence[ModeChange]:
    """All changes that every rank has heard of by now, oldest first. Every rank calls it."""
    session = current()
    while (change := session.next_mode_change()) is not None:
        if not _asked:
            before_close(lambda _: _asked.clear())
        _asked.append(change)
    return list(_asked)


def is_move(change: ModeChange) -> bool:
    """Says that shards have come or gone, and nothing of modes."""
    return change[1].startswith(_PLACEMENT)


def newest_move(changes: Sequence[ModeChange]) -> int:
    """What tensors on shards are to be registered with; 0: nothing."""
    moves = [change for change in changes if is_move(change)]
    return int(moves[-1][1].removeprefix(_PLACEMENT)) if moves else 0


def fence_period() -> int:
    """Steps from one fence to the next, as the environment says; 0: only where flush() is called."""
    text = os.environ.get(FENCE_EVERY, "0")
    if not (text.isascii() and text.isdigit()):
        raise bad_argument(f"{FENCE_EVERY} is '{text}'", "give it a whole number of steps")
    return int(text)


def mode_by(changes: Sequence[ModeChange], name: str, otherwise: str | None) -> str | None:
    """The mode that the newest change wants for this parameter."""
    for group, mode in reversed(changes):
        if _core.glob_matches(group, name):
            return mode
    return otherwise

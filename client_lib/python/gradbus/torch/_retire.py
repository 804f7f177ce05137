"""Buckets and names whose wrapper is gone: their memory is free when every rank has unregistered them.

Waits for nobody. Ranks may come here at different times.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from .. import _core
from .._errors import BusyError, GradbusError
from .._process_sets import ProcessSet, session_of

_busy: list[_core.Bucket] = []  # with a round under way: they are tried again


def retire(cores: Iterable[_core.Bucket]) -> None:
    """Nobody here uses these any more."""
    waiting = [*_busy, *cores]
    _busy.clear()
    for core in waiting:
        try:
            if core.test():
                core.wait()  # for a result that nobody wanted
            core.unregister()
        except BusyError:
            _busy.append(core)
        except GradbusError:
            continue  # the session is over, and the memory with it


def retire_names(names: Iterable[str], process_set: ProcessSet) -> None:
    """No operations of these names come any more."""
    for name in names:
        with contextlib.suppress(GradbusError):  # there was none, or the session is over
            session_of(process_set, "unregister").unregister(name)

"""Buckets and names whose wrapper is gone: their memory is free when every rank has unregistered them.

Waits for nobody. Ranks may come here at different times.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from ... import _core
from ..._errors import BusyError, GradbusError
from ..._process_sets import ProcessSet, session_of

_busy: list[_core.Bucket] = []  # with a round under way: they are tried again
_collected: list[_core.Bucket] = []  # on shards, of wrappers that were garbage-collected


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


def retire_later(cores: Iterable[_core.Bucket]) -> None:
    """Nobody here uses these any more; they are unregistered when the next wrapper is made.

    For buckets on shards. Most wrappers are garbage-collected just before the program ends, and the snapshot
    that shards write at the end of the job must still hold their parameters.
    """
    _collected.extend(cores)


def retire_collected() -> None:
    """A new wrapper is made: unregisters what waited for it."""
    waiting = _collected.copy()
    _collected.clear()
    retire(waiting)


def retire_names(names: Iterable[str], process_set: ProcessSet) -> None:
    """No operations of these names come any more."""
    for name in names:
        with contextlib.suppress(GradbusError):  # there was none, or the session is over
            session_of(process_set, "unregister").unregister(name)

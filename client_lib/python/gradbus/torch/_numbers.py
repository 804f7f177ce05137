"""Numbers the distributed optimizers of one process set and session, so that no two of them share buckets.

Members of a set make their optimizers in the same order, so they agree on numbers without asking. An optimizer of
another set counts there: ranks outside that set do not know it. A number is never given twice in a session.
"""

from __future__ import annotations

import weakref

from .._process_sets import ProcessSet

_next: weakref.WeakKeyDictionary[ProcessSet, int] = weakref.WeakKeyDictionary()


def next_number(process_set: ProcessSet) -> int:
    """From 0 on; from 0 again in the next session."""
    number = _next.get(process_set, 0)
    keep_number(process_set, number)
    return number


def keep_number(process_set: ProcessSet, number: int) -> None:
    """An optimizer of the session before keeps its number: no other one gets it."""
    if process_set not in _next:
        reference = weakref.ref(process_set)
        process_set._before_close(lambda _: _forget(reference))
    _next[process_set] = max(number + 1, _next.get(process_set, 0))


def _forget(key: weakref.ref[ProcessSet]) -> None:
    process_set = key()
    if process_set is not None:
        _next.pop(process_set, None)

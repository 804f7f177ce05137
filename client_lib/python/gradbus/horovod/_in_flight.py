"""The named operations that are in flight: Horovod refuses a second one of the same name, and so do we.

Gradbus itself runs operations of one name one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._errors import bad_argument
from .._handles import Handle
from .._process_sets import ProcessSet

_Key = tuple[str, int, str]
_in_flight: dict[_Key, Handle[Any]] = {}
_KEPT_MAX = 256  # handles that nobody has waited for are kept up to this number before a search


def started(verb: str, name: str | None, process_set: ProcessSet, start: Callable[[], Handle[Any]]) -> Handle[Any]:
    """The handle that ``start`` makes. Raises InvalidError while an operation of this verb and name is in flight."""
    if name is None:
        return start()
    key = (verb, id(process_set), name)
    before = _in_flight.get(key)
    if before is not None and not _is_over(before):
        raise bad_argument(
            f"{verb}: tensor '{name}' has the name of one that is still in flight",
            "synchronize() the first operation before you start the next, or give each its own name",
        )
    if len(_in_flight) >= _KEPT_MAX:
        for old in [old for old, handle in _in_flight.items() if _is_over(handle)]:
            del _in_flight[old]
    handle = start()
    _in_flight[key] = handle
    handle.when_waited(lambda: _in_flight.pop(key, None))
    return handle


def _is_over(handle: Handle[Any]) -> bool:
    try:
        return handle.poll()
    except RuntimeError:  # it failed, or its session was closed
        return True

"""Those who hold views of a session's shared memory let go of them before it ends."""

from __future__ import annotations

import weakref
from typing import Protocol

from ..._errors import ClosedError
from ..._process_sets import ProcessSet

SHUT_DOWN = (
    "the session of this optimizer was shut down | next: call gradbus.init() and DistributedOptimizer() again"
)


def closed_error(why: str) -> ClosedError:
    """Of what has detached."""
    return ClosedError(f"GB-O900 BAD_ARGUMENT: {why}")


class Detachable(Protocol):
    """Holds views of shared memory."""

    def detach(self, process_goes_on: bool) -> None:
        """Lets go of them."""


_Holders = list["weakref.ref[Detachable]"]  # oldest first
_holders: weakref.WeakKeyDictionary[ProcessSet, _Holders] = weakref.WeakKeyDictionary()


def detach_before_close(holder: Detachable, process_set: ProcessSet) -> None:
    """Has the holder, if it is still there, detach before the session ends."""
    known = _holders.get(process_set)
    if known is None:
        reference = weakref.ref(process_set)
        process_set._before_close(lambda process_goes_on: _detach(reference, process_goes_on))
        known = []
    # A training may make one optimizer for each epoch: those that are gone are forgotten.
    alive = [reference for reference in known if reference() is not None]
    _holders[process_set] = [*alive, weakref.ref(holder)]


def _detach(reference: weakref.ref[ProcessSet], process_goes_on: bool) -> None:
    process_set = reference()
    known = _holders.pop(process_set, []) if process_set is not None else []
    for holder in reversed(known):
        alive = holder()
        if alive is not None:
            alive.detach(process_goes_on)

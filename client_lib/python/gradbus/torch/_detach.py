"""Those who hold views of a session's shared memory let go of them before it ends."""

from __future__ import annotations

import weakref
from typing import Protocol

from .._process_sets import ProcessSet


class Detachable(Protocol):
    """Holds views of shared memory."""

    def detach(self, process_goes_on: bool) -> None:
        """Lets go of them."""


def detach_before_close(holder: Detachable, process_set: ProcessSet) -> None:
    """Has the holder, if it is still there, detach before the session ends."""
    reference = weakref.ref(holder)

    def detach(process_goes_on: bool) -> None:
        alive = reference()
        if alive is not None:
            alive.detach(process_goes_on)

    process_set._before_close(detach)

"""Functions for all operations: barrier, poll, synchronize, unregister.

Operations are matched between ranks by ``name``, or without one by their order among the unnamed
operations of the same kind, dtype, size and op. Every rank must start the same ones; if one does not,
the others get a MismatchError, PeerLostError or TimeoutError, never a hang.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

from ._errors import bad_argument
from ._handles import Handle
from ._process_sets import ProcessSet, global_process_set, session_of

T = TypeVar("T")


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns when every rank has called it."""
    session_of(process_set, "barrier").barrier()


def _checked_handle(handle: Handle[T], verb: str) -> Handle[T]:
    if isinstance(handle, Handle):
        return handle
    raise bad_argument(
        f"{verb}: a {type(handle).__name__} is no handle", "pass what allreduce_async() returned"
    )


def poll(handle: Handle[Any]) -> bool:
    """True when synchronize(handle) would not block."""
    return _checked_handle(handle, "poll").poll()


def synchronize(handle: Handle[T], timeout: float | None = None) -> T:
    """Waits for an ``*_async`` operation and returns its result.

    ``timeout`` in seconds, default init()'s op_timeout; after a TimeoutError the operation is still
    in flight and can be waited for again.
    """
    waited = _checked_handle(handle, "synchronize")
    if timeout is None:
        return waited.wait()
    if not isinstance(timeout, (int, float)) or not math.isfinite(timeout):
        raise bad_argument(
            f"synchronize: timeout={timeout!r} is no number of seconds", "pass timeout=60"
        )
    return waited.wait(max(0, round(timeout * 1000)))


def unregister(name: str, process_set: ProcessSet = global_process_set) -> None:
    """Frees the shared memory of operations that were named ``name``, once every rank has called it.

    The first operation of a name allocates memory and keeps it for the next one. The call does not wait
    for other ranks. The name may be used again afterwards, as if for the first time. Raises BusyError
    while an operation of this name is in flight, and InvalidError when there was none.
    """
    session_of(process_set, "unregister").unregister(name)

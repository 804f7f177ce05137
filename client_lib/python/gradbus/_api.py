"""What the operations have in common for their callers.

Operations are matched between ranks by ``name``, or without one by their order among the unnamed
operations of the same kind, dtype, size and op. Every rank must start the same ones; if one does not,
the others get a MismatchError, PeerLostError or TimeoutError, never a hang.
"""

from __future__ import annotations

from typing import Any

from ._handles import Handle
from ._process_sets import ProcessSet, global_process_set, session_of


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns when every rank has called it."""
    session_of(process_set, "barrier").barrier()


def poll(handle: Handle) -> bool:
    """True when synchronize(handle) would not block."""
    return handle.poll()


def synchronize(handle: Handle, timeout: float | None = None) -> Any:
    """Waits for an ``*_async`` operation and returns its result.

    ``timeout`` in seconds, default init()'s op_timeout; after a TimeoutError the operation is still
    in flight and can be waited for again.
    """
    return handle.wait(None if timeout is None else max(0, round(timeout * 1000)))

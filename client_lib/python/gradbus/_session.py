"""The process's one session: how it ends, and who this rank is. ``_init.py`` opens it.

``shutdown`` belongs to the main thread; everything else may be called from any thread.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable

from . import _core
from ._errors import GradbusError, NotInitializedError

_session: _core.Session | None = None
_session_pid = 0
# Run before the session closes, while views of shared memory are still valid.
# The argument says whether the process goes on, so that values are worth keeping.
_before_close: list[Callable[[bool], None]] = []
_lost_steps: list[GradbusError] = []
_failures_before = 0  # of the session


def open_session(session: _core.Session) -> None:
    """Makes this the session of the process."""
    global _session, _session_pid, _failures_before
    _failures_before = GradbusError.failures
    _session = session
    _session_pid = os.getpid()


def _close(process_goes_on: bool) -> None:
    global _session
    if not is_initialized():
        return
    for callback in reversed(_before_close):  # what was made later may lie in what was made before
        callback(process_goes_on)
    _before_close.clear()
    session, _session = _session, None
    if session is not None:
        session.close()
    failures = _lost_steps.copy()
    _lost_steps.clear()
    if failures and process_goes_on:
        raise failures[0]
    if failures:
        print(f"gradbus: the last step was not made: {failures[0]}", file=sys.stderr)
        # Python gives no other way to change the exit status so late.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)


def has_failed() -> bool:
    """The program has been told that its job failed, by an error since init()."""
    return GradbusError.failures > _failures_before


def lost_step(error: GradbusError) -> None:
    """A step that was put off has failed, and no caller has heard of it: shutdown() raises this, or the process ends
    with status 1."""
    _lost_steps.append(error)


def shutdown() -> None:
    """Leaves the job. Operations in flight are abandoned; ``param.grad`` views become copies.

    Does nothing without a session. Runs by itself at the end of the process. Raises PeerLostError and the like if
    the last step was left to a forward pass that never came, and its exchange has failed.
    """
    _close(process_goes_on=True)


atexit.register(_close, process_goes_on=False)


def before_close(callback: Callable[[bool], None]) -> None:
    """Has ``callback(process_goes_on)`` run once before the session ends."""
    _before_close.append(callback)


def is_initialized() -> bool:
    """True between init() and shutdown(), and not in a child forked in between."""
    return _session is not None and _session_pid == os.getpid()


def is_traced() -> bool:
    """True while a trace of the job is recorded."""
    return _session is not None and _session_pid == os.getpid() and _session.tracing()


def current() -> _core.Session:
    """The session; raises ClosedError, which is a ValueError as well, when there is none."""
    if _session is None:
        raise NotInitializedError(
            "GB-O900 BAD_ARGUMENT: Gradbus is not initialized | next: call gradbus.init() first"
        )
    return _session  # a forked child's use is refused by the extension, with the reason


def rank() -> int:
    """This process's number in the job, from 0."""
    return current().rank


def size() -> int:
    """How many processes the job has."""
    return current().size


def local_rank() -> int:
    """This process's number on its node, from 0."""
    return current().local_rank


def local_size() -> int:
    """How many processes of the job run on this node."""
    return current().local_size


def cross_rank() -> int:
    """This node's number in the job, from 0."""
    return current().cross_rank


def cross_size() -> int:
    """How many nodes the job has."""
    return current().cross_size

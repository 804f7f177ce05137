"""``start_timeline()`` and ``stop_timeline()``: rank 0 has `gradbus trace` record its job. Main thread."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
import warnings

from ..__main__ import words_of
from .._errors import TimeoutError, UnavailableError, bad_argument
from .._session import current

_START_S = 30.0  # until the ranks record
_ON_THEIR_WAY_S = 0.5  # spans from agents, every 50 ms, to the recorder
_END_S = 60.0  # until the file is written
_LAUNCHER_S = 2.0  # until a recorder that `gradbus run` has started is seen

_recorder: subprocess.Popen[str] | None = None


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Records what ranks and agents do until stop_timeline(), or the end of the job. Rank 0 writes the file.

    ``mark_cycles`` changes nothing, because Gradbus has no cycles. Any ranks may call it, and only rank 0's call
    counts. In a job of one rank, and while a trace is recorded already, it only warns. Raises InvalidError for
    something that is no path, and UnavailableError with what the command said.
    """
    global _recorder
    session = current()
    if not isinstance(file_path, (str, os.PathLike)) or not os.fspath(file_path):
        raise bad_argument(f"start_timeline: file_path={file_path!r} is no path", "pass a path of a file to write")
    if session.size == 1:
        _warn("start_timeline: a job of one rank exchanges nothing, so there is no timeline")
        return
    if session.rank != 0:
        return
    if _recorder is not None and _recorder.poll() is None:
        _warn("start_timeline: this job is recorded already, so this call changes nothing")
        return
    command = words_of("trace", session.job, "--to-the-end", "-o", os.fspath(file_path))
    _recorder = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + _START_S
    while not session.tracing():
        if _recorder.poll() is not None or time.monotonic() >= deadline:
            raise _failed("start_timeline")
        time.sleep(0.01)


def start_from_environment() -> None:
    """start_timeline() with HOROVOD_TIMELINE. If it fails, the job goes on with a warning.

    `gradbus run` reads the same variable, so rank 0 first waits for its recorder. "DYNAMIC" starts nothing.
    """
    file_path = os.environ.get("HOROVOD_TIMELINE", "")
    session = current()
    if not file_path or file_path.upper() == "DYNAMIC" or session.rank != 0 or session.size == 1:
        return
    deadline = time.monotonic() + (_LAUNCHER_S if session.launcher == "gradbus" else 0)
    while not session.tracing() and time.monotonic() < deadline:
        time.sleep(0.01)
    if session.tracing():
        return
    try:
        start_timeline(file_path)
    except (UnavailableError, OSError) as error:
        _warn(f"HOROVOD_TIMELINE: {error}")


def stop_timeline() -> None:
    """Ends the recording and waits until the file is written. Does nothing if nothing is recorded."""
    global _recorder
    current()
    if _recorder is None:
        return
    time.sleep(_ON_THEIR_WAY_S)
    with contextlib.suppress(ProcessLookupError):
        _recorder.send_signal(signal.SIGINT)
    try:
        _recorder.communicate(timeout=_END_S)
    except subprocess.TimeoutExpired:
        _recorder.kill()
        raise TimeoutError(
            f"GB-P110 STALLED: stop_timeline: the trace was not written within {_END_S:g} s"
            " | next: use `gradbus trace JOB` in a shell"
        ) from None
    finally:
        _recorder = None


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=3)


def _failed(verb: str) -> UnavailableError:
    global _recorder
    said = ""
    if _recorder is not None:
        _recorder.kill()
        said = " ".join(_recorder.communicate()[0].split())
    _recorder = None
    return UnavailableError(
        f"GB-C501 COORDINATOR_LOST: {verb}: `gradbus trace` has not begun: {said or 'it said nothing'} | next: make "
        "GRADBUS_COORDINATOR and GRADBUS_TOKEN_FILE known to rank 0, or call `gradbus trace JOB` in a shell"
    )

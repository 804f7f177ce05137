"""``init()``: checks its arguments, opens the session and adds the process sets.

Belongs to the main thread.
"""

from __future__ import annotations

import dataclasses
import math
import operator
import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from . import _core
from ._errors import bad_argument
from ._launch.torchrun import agreed_name
from ._mpi import place_in
from ._process_sets import ProcessSet, add_process_set
from ._session import current, is_initialized, open_session


@dataclasses.dataclass(frozen=True)
class _Arguments:
    """Of init()."""

    job: str | None = None
    rank: int | None = None
    size: int | None = None
    socket: str | os.PathLike[str] | None = None
    start_timeout: float | None = None
    op_timeout: float | None = None
    process_sets: Sequence[ProcessSet] = ()


_arguments = _Arguments()  # of the last session
_after_open: list[Callable[[], None]] = []  # what was done after init(), and again after each join_again()


def _milliseconds(seconds: float | None, name: str) -> int | None:
    if seconds is None:
        return None
    if not isinstance(seconds, (int, float)) or not math.isfinite(seconds) or seconds <= 0:
        raise bad_argument(
            f"init: {name}={seconds!r} is no positive number of seconds", f"pass {name}=60"
        )
    return max(1, round(seconds * 1000))


def _whole(value: int | None, name: str, least: int) -> int | None:
    if value is None:
        return None
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if not least <= number < 2**31:
        raise bad_argument(
            f"init: {name}={value!r} is no whole number of at least {least}",
            "leave it out to take it from the launcher",
        )
    return number


def _path(socket: str | os.PathLike[str] | None) -> str | None:
    if socket is None or isinstance(socket, (str, os.PathLike)):
        return None if socket is None else os.fspath(socket)
    raise bad_argument(f"init: socket={socket!r} is no path", "leave it out, or pass the agent's socket")


def _job(job: str | None) -> str | None:
    if job is None or isinstance(job, str):
        return job
    raise bad_argument(
        f"init: job={job!r} is no text",
        "leave it out to take it from the launcher; for a set of ranks pass process_sets=[[0, 1]]",
    )


def init(
    job: str | None = None,
    rank: int | None = None,
    size: int | None = None,
    socket: str | os.PathLike[str] | None = None,
    start_timeout: float | None = None,
    op_timeout: float | None = None,
    process_sets: Sequence[ProcessSet] = (),
    comm: Any = None,
) -> None:
    """Joins the job and waits until every rank has.

    What is not given is read from ``GRADBUS_*``, torchrun's, Open MPI's, PMI's or Slurm's variables,
    in this order; with none of them this process is a world of one, which needs no daemon.

    Args:
        job: name of the job, the same on all ranks.
        rank, size: this process's number, 0 <= rank < size, and how many there are.
        socket: path of the agent's socket.
        start_timeout: seconds to wait for the other ranks (default 60).
        op_timeout: seconds after which a wait raises TimeoutError (default 1800). A rank or node that
            dies ends a wait earlier, so this limit only ends real deadlocks.
        process_sets: sets to add at once, the same on every rank.
        comm: a communicator of mpi4py, whose ranks make the job. All of them call it.

    Calling it again changes nothing; it warns of arguments that differ from the first ones. Raises
    InvalidError, UnavailableError (no agent), PermissionError, MismatchError (rank taken, sizes
    differ), VersionSkewError and TimeoutError (names the missing ranks).
    """
    if comm is not None:
        if not (job is None and rank is None and size is None):
            raise bad_argument("init: comm= gives job, rank and size", "leave rank= out, and job= and size=")
        if is_initialized():
            return
        job, rank, size = place_in(comm)
    given = _Arguments(job, rank, size, socket, start_timeout, op_timeout, process_sets)
    if is_initialized():
        _warn_of_differences(given)
        return
    _after_open.clear()
    _open(_with_agreed_name(given))


def _with_agreed_name(given: _Arguments) -> _Arguments:
    """Under torchrun with restarts on several nodes. join_again() keeps the name."""
    if not (given.job is None and given.rank is None and given.size is None):
        return given
    milliseconds = _milliseconds(given.start_timeout, "start_timeout")
    name = agreed_name(milliseconds / 1000 if milliseconds else None)
    return given if name is None else dataclasses.replace(given, job=name)


def _warn_of_differences(given: _Arguments) -> None:
    """Arguments that are not those of the session that is open."""
    now = current()
    known = {"job": now.job, "rank": now.rank, "size": now.size}
    differ = []
    for field in dataclasses.fields(given):
        value, first = getattr(given, field.name), getattr(_arguments, field.name)
        if value not in (field.default, first, known.get(field.name, first)):
            differ.append(f"{field.name}={value!r}")
    if differ:
        warnings.warn(
            f"GB-O900 BAD_ARGUMENT: init: already initialized, {', '.join(differ)} changes nothing"
            " | next: call gradbus.shutdown() first",
            RuntimeWarning,
            stacklevel=3,
        )


def _process_sets(given: Sequence[ProcessSet]) -> list[ProcessSet]:
    try:
        return list(given)
    except TypeError:
        raise bad_argument(
            f"init: process_sets={given!r} is no list", "pass a list of ProcessSet or of lists of ranks"
        ) from None


def do_in_each_session(function: Callable[[], None]) -> None:
    """Calls it now, after init(), and after each join_again() that follows."""
    function()
    _after_open.append(function)


def join_again(start_timeout: float) -> None:
    """A new session in the place of the last one, which was shut down: init() with its arguments."""
    _open(_arguments, start_timeout)
    for function in _after_open:
        function()


def _open(arguments: _Arguments, start_timeout: float | None = None) -> None:
    global _arguments
    sets = _process_sets(arguments.process_sets)
    session = _core.Session(
        job=_job(arguments.job),
        socket_path=_path(arguments.socket),
        rank=_whole(arguments.rank, "rank", 0),
        world_size=_whole(arguments.size, "size", 1),
        start_timeout_ms=_milliseconds(start_timeout or arguments.start_timeout, "start_timeout"),
        op_timeout_ms=_milliseconds(arguments.op_timeout, "op_timeout"),
    )
    open_session(session)
    _arguments = arguments
    for process_set in sets:
        add_process_set(process_set)

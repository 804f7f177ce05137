"""Runs one command to its end, its deadline or Ctrl-C, and leaves nothing of it behind.

Commands are launchers (mpirun, horovodrun, gradbus) that start processes of their own in groups of their
own. This process is made the reaper of all its descendants, so whatever a launcher that was killed has left
comes back here and is ended by its process id. Single-threaded.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import glob
import os
import pathlib
import re
import resource
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator

PR_SET_CHILD_SUBREAPER = 36
GRACE_S = 8  # to end politely: gradbus removes its network namespaces in this time
ERROR_CHARACTERS_MAX = 300
RANK_PREFIX = re.compile(r"^\[\d+\]<std(?:out|err)>:", re.MULTILINE)  # of horovodrun
# What Open MPI leaves in /dev/shm when it is killed; its other files lie in the folder TMPDIR names.
SHARED_MEMORY_LEFTOVERS = "/dev/shm/vader_segment.*"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a command ended. `problem` is empty when it ended well."""

    output: str
    problem: str
    seconds: float
    cpu_seconds: float  # of it and all processes it started


def become_reaper() -> None:
    """Orphans of commands become children of this process."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def interrupt_on_terminate() -> None:
    """SIGTERM and SIGHUP end a run the way Ctrl-C does."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)


def children() -> list[int]:
    """Process ids of the children of this process."""
    listed = pathlib.Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text()
    return [int(pid) for pid in listed.split()]


def reap_orphans(spared: set[int]) -> None:
    """Ends what a command has left, generation by generation: each kill may hand over new orphans."""
    until = time.monotonic() + GRACE_S
    while (left := set(children()) - spared) and time.monotonic() < until:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def stop(process: subprocess.Popen[str]) -> None:
    """Asks a command to end, then makes it."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def nothing_left_behind(process: subprocess.Popen[str]) -> Iterator[None]:
    """Whatever happens inside, no process and no file of the command stays."""
    others = set(children()) - {process.pid}
    files = set(glob.glob(SHARED_MEMORY_LEFTOVERS))
    try:
        yield
    finally:
        stop(process)
        reap_orphans(others)
        for path in set(glob.glob(SHARED_MEMORY_LEFTOVERS)) - files:
            with contextlib.suppress(OSError):
                os.unlink(path)


def children_cpu_seconds() -> float:
    """User and system time of all children that have ended, and theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def describe_failure(status: int, errors: str) -> str:
    """One line: the exit status and the last words, those of the ranks before horovodrun's own."""
    lines = [line.strip() for line in errors.splitlines() if line.strip(" -")]
    lines = [RANK_PREFIX.sub("", line) for line in lines if RANK_PREFIX.match(line)] or lines
    telling = next((line for line in reversed(lines) if "rror" in line or "GB-" in line), "")
    words = telling or (lines[-1] if lines else "it printed nothing")
    return f"exit status {status}: {words[:ERROR_CHARACTERS_MAX]}"


def run(command: list[str], deadline_s: float, environment: dict[str, str] | None = None) -> Outcome:
    """Runs `command`, for at most `deadline_s`, with `environment` added to this process's own."""
    began, cpu_began = time.monotonic(), children_cpu_seconds()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, text=True,
                                       env={**os.environ, **(environment or {})}, start_new_session=True)
        except OSError as error:
            return Outcome("", f"cannot start {command[0]}: {error.strerror}", 0.0, 0.0)
        problem = ""
        with nothing_left_behind(process):
            try:
                process.wait(max(deadline_s, 0.1))
            except subprocess.TimeoutExpired:
                problem = f"not finished in {deadline_s:.0f} s"
        out.seek(0)
        err.seek(0)
        if not problem and process.returncode != 0:
            problem = describe_failure(process.returncode, err.read())
        return Outcome(out.read(), problem, time.monotonic() - began, children_cpu_seconds() - cpu_began)

"""Python ranks without two seconds of `import torch` each: a server process for each Python has imported it, and forks.

A rank is a process of its own as ever, with its own environment, arguments, output and exit status; it runs its program
as `__main__`. What Python does once for a process is the server's: above all hashes of strings are the same in all of a
job's ranks, and so is the order of their sets. A rank ends without the teardown of torch (`leave`), which takes
ten times as long as a short rank's work. `gradbus run` and the examples start Pythons of their own; those skip nothing.

`PYTHON fork_server.py FD` is the server; the socket FD has a command as JSON in each packet, and with it two
descriptors: where the rank writes, and a socket that gets its process id and later its exit status. The server ends
with its socket.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import pathlib
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import types

NUMBER = struct.Struct("i")
PACKET_MAX = 1 << 20
START_MAX_S = 300.0  # with importing torch, in an emulated processor
# Python, the loader and torch read them when they start.
READ_AT_START = ("PYTHON", "LD_", "OMP_", "MKL_", "OPENBLAS_", "TORCH", "CUDA", "PATH", "HOME", "LANG", "LC_")

# ---- in the tests


class ForkedProcess:
    """What the tests use of subprocess.Popen. Its output is a pipe."""

    def __init__(self, pid: int, status: socket.socket, output: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdout = open(output, encoding="utf-8", errors="replace")
        self._status = status
        self._pieces: list[bytes] = []

    def wait(self, timeout: float | None = None) -> int:
        """As Popen.wait."""
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            (self.returncode,) = NUMBER.unpack(self._status.recv(NUMBER.size))
            self._status.close()
        return self.returncode

    def poll(self) -> int | None:
        """As Popen.poll."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def communicate(self, timeout: float) -> tuple[str, None]:
        """As Popen.communicate: the rest of its output."""
        until = time.monotonic() + timeout
        os.set_blocking(self.stdout.fileno(), False)
        while select.select([self.stdout], [], [], max(0, until - time.monotonic()))[0]:
            piece = os.read(self.stdout.fileno(), 1 << 16)
            if not piece:
                self.stdout.close()
                self.wait(max(0, until - time.monotonic()))
                return b"".join(self._pieces).decode(errors="replace"), None
            self._pieces.append(piece)
        raise subprocess.TimeoutExpired(f"process {self.pid}", timeout, b"".join(self._pieces))

    def send_signal(self, sig: int) -> None:
        """As Popen.send_signal."""
        if self.poll() is None:
            os.kill(self.pid, sig)

    def kill(self) -> None:
        """As Popen.kill."""
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """A running server."""

    def __init__(self, python: str, env: dict[str, str]) -> None:
        self._jobs, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [python, __file__, str(theirs.fileno())]
            self._process = subprocess.Popen(command, env=env, pass_fds=[theirs.fileno()])

    def start(self, command: list[str], env: dict[str, str]) -> ForkedProcess:
        """`command`: a program's file and its arguments."""
        reader, writer = os.pipe()
        status, theirs = socket.socketpair()
        with theirs:
            job = json.dumps({"command": command, "env": env, "folder": os.getcwd()}).encode()
            socket.send_fds(self._jobs, [job], [writer, theirs.fileno()])
        os.close(writer)
        status.settimeout(START_MAX_S)
        pid = status.recv(NUMBER.size)
        status.settimeout(None)
        assert pid, f"the fork server ended: {self._process.wait()}"
        return ForkedProcess(*NUMBER.unpack(pid), status, reader)

    def stop(self) -> None:
        """Ends it."""
        self._jobs.close()
        self._process.wait()


_servers: dict[tuple, ForkServer] = {}


@atexit.register
def stop_all() -> None:
    """Ends all servers."""
    while _servers:
        _servers.popitem()[1].stop()


def can_start(command: list[str]) -> bool:
    """Whether it is a Python with its program in a file."""
    return pathlib.Path(command[0]).name == "python" and command[1].endswith(".py")


def start(command: list[str], env: dict[str, str]) -> ForkedProcess:
    """Starts a command that it can."""
    read_at_start = {name: value for name, value in env.items() if name.startswith(READ_AT_START)}
    key = (command[0], *sorted(read_at_start.items()))
    if key not in _servers:
        _servers[key] = ForkServer(command[0], read_at_start)
    return _servers[key].start(command[1:], env)


# ---- the server


def import_first() -> None:
    """What ranks import."""
    import numpy  # noqa: F401
    import torch

    if hasattr(torch, "compile"):  # then the first optimizer imports this
        import torch._dynamo  # noqa: F401
    gc.collect()
    gc.freeze()  # collections in the ranks need not visit (and so copy) a million objects of torch


def serve(jobs: socket.socket) -> dict:
    """Returns in each forked process, with its job."""
    statuses: dict[int, socket.socket] = {}
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready, _, _ = select.select([jobs, ended], [], [])
        if ended in ready:
            os.read(ended, 4096)
            tell_ended(statuses)
        if jobs not in ready:
            continue
        text, descriptors, _, _ = socket.recv_fds(jobs, PACKET_MAX, 2)
        if not text:
            os._exit(0)  # as ranks do: without the teardown of torch
        output, status = descriptors[0], socket.socket(fileno=descriptors[1])
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.dup2(output, 1)
            os.dup2(output, 2)
            for descriptor in (output, ended, wake):
                os.close(descriptor)
            for other in (jobs, status, *statuses.values()):
                other.close()
            return json.loads(text)
        os.close(output)
        status.send(NUMBER.pack(pid))
        statuses[pid] = status


def tell_ended(statuses: dict[int, socket.socket]) -> None:
    """Says how they ended to those who started them."""
    while statuses:
        pid, how = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with statuses.pop(pid) as status, contextlib.suppress(OSError):  # nobody may want to know
            status.send(NUMBER.pack(os.waitstatus_to_exitcode(how)))


def become(job: dict) -> dict:
    """Makes this process what a Python is that begins with the job's program: the program's names."""
    os.environ.clear()
    os.environ.update(job["env"])
    os.chdir(job["folder"])
    sys.stdout.reconfigure(line_buffering=False)
    sys.argv = job["command"]
    sys.path[0] = str(pathlib.Path(sys.argv[0]).parent)
    sys.modules["numpy"].random.seed()
    program = types.ModuleType("__main__")
    program.__file__ = sys.argv[0]
    program.__builtins__ = __builtins__
    sys.modules["__main__"] = program
    return program.__dict__


def run(names: dict) -> int:
    """Runs the program; its exit status. What it raises is reported as by Python."""
    try:
        exec(compile(pathlib.Path(sys.argv[0]).read_bytes(), sys.argv[0], "exec"), names)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 0xFF
        print(end.code, file=sys.stderr)
    except KeyboardInterrupt:
        sys.excepthook(*sys.exc_info())
        return -signal.SIGINT
    except BaseException:
        sys.excepthook(*sys.exc_info())
    else:
        return 0
    return 1


def leave(names: dict, status: int) -> None:
    """Ends this process as Python does: threads, exit handlers, the program's objects, output. Modules stay.

    `status`: as `run` returned it; a negative one is the signal that ends the process.
    """
    threading._shutdown()
    atexit._run_exitfuncs()
    for name in names:
        if name != "__builtins__":
            names[name] = None
    gc.collect()
    sys.stdout.flush()
    sys.stderr.flush()
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    import_first()
    names = become(serve(socket.socket(fileno=int(sys.argv[1]))))
    leave(names, run(names))

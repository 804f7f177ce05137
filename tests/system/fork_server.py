"""Python ranks without seconds of `import torch` each: server processes have imported what they import, and fork.

A rank is a process of its own as ever, with its own environment, arguments, output and exit status; it runs its program
as `__main__`. What Python does once for a process is the server's: above all hashes of strings are the same in all of a
job's ranks, and so is the order of their sets. A rank ends without the teardown of torch (`leave`), which takes
ten times as long as a short rank's work.

A launcher starts a small program in place of Python (`run`, forked_rank.py), which asks the server and stays
until the rank ends. It passes signals on, and the server kills the rank if it dies. Tests of launchers, of installed
packages and of what a process does at its start use Python itself.

`PYTHON fork_server.py FD FD MODULES` is the server. A packet on the first socket, or on a connection to the second one,
has a command as JSON. With it come descriptors: where the rank writes, and a socket that gets its process id and later
its exit status; a connection gets these itself. The server ends with its first socket.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib.util
import json
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import types
from typing import Any

NUMBER = struct.Struct("i")
PACKET_MAX = 1 << 20
START_MAX_S = 300.0  # with importing torch, in an emulated processor
# Python, the loader and torch read them when they start.
READ_AT_START = (
    "PYTHON", "LD_", "OMP_", "MKL_", "OPENBLAS_", "TORCH", "CUDA", "PATH", "HOME", "LANG", "LC_", "TF_", "XLA_", "JAX_",
    "KERAS_",
)  # fmt: skip
# What is worth to be imported before, at the top of a program. MXNet has threads.
IMPORTS = re.compile(r"^(?:import|from) (jax|keras|tensorflow|torch)\b", re.MULTILINE)
# A program that imports them later, in functions, says so in such a line.
FORKED_AFTER = re.compile(r"^# Forked after: (.*)$", re.MULTILINE)
# Ray starts its workers as it was started itself.
STARTS_PYTHONS = re.compile(r"^(?:import|from) ray\b", re.MULTILINE)
FORKED_RANK = pathlib.Path(__file__).with_name("forked_rank.py")

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

    def __init__(self, python: str, env: dict[str, str], modules: tuple[str, ...]) -> None:
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="gradbus-test-"), "ranks.sock")
        self._jobs, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(str(self.path))
            listener.listen()
            descriptors = [theirs.fileno(), listener.fileno()]
            command = [python, __file__, *map(str, descriptors), *modules]
            self._process = subprocess.Popen(command, env=env, pass_fds=descriptors)

    def start(self, command: list[str], env: dict[str, str], folder: str) -> ForkedProcess:
        """`command`: a program's file and its arguments."""
        reader, writer = os.pipe()
        status, theirs = socket.socketpair()
        with theirs:
            job = json.dumps({"command": command, "env": env, "folder": folder}).encode()
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
        shutil.rmtree(self.path.parent)


_servers: dict[tuple, ForkServer] = {}


@atexit.register
def stop_all() -> None:
    """Ends all servers."""
    while _servers:
        _servers.popitem()[1].stop()


def can_start(command: list[str]) -> bool:
    """Whether it is a Python with its program in a file, and which imports what a server can."""
    is_python = len(command) > 1 and pathlib.Path(command[0]).name in ("python", "python3")
    return is_python and command[1].endswith(".py") and bool(modules_of(command))


def modules_of(command: list[str]) -> tuple[str, ...]:
    """What the program imports of IMPORTS. Those of a "python" that do not say so import torch with gradbus."""
    text = pathlib.Path(command[1]).read_text()
    if STARTS_PYTHONS.search(text):
        return ()
    found = IMPORTS.findall(text) + [name for line in FORKED_AFTER.findall(text) for name in line.split(", ")]
    if not found and pathlib.Path(command[0]).name == "python":
        found = ["torch"]
    return tuple(sorted(set(found)))


def read_at_start(env: dict[str, str]) -> dict[str, str]:
    """The variables of READ_AT_START."""
    return {name: value for name, value in env.items() if name.startswith(READ_AT_START)}


def server_of(command: list[str], env: dict[str, str]) -> ForkServer:
    """The server that starts such commands."""
    modules = modules_of(command)
    key = (command[0], modules, *sorted(read_at_start(env).items()))
    if key not in _servers:
        _servers[key] = ForkServer(command[0], read_at_start(env), modules)
    return _servers[key]


def start(command: list[str], env: dict[str, str], folder: str | None = None) -> ForkedProcess:
    """Starts a command that it can."""
    return server_of(command, env).start(command[1:], env, str(folder or os.getcwd()))


def run(command: list, *, env: dict[str, str] | None = None, **options: Any) -> subprocess.CompletedProcess:
    """As subprocess.run. The Python that a launcher in the command starts, or that it is, is forked from a server."""
    return subprocess.run(with_forked_rank(command, dict(os.environ) if env is None else env), env=env, **options)


def with_forked_rank(command: list, env: dict[str, str]) -> list[str]:
    """The command with forked_rank.py in front of its Python and that one's program."""
    words = [str(word) for word in command]
    if pathlib.Path(words[0]).name.startswith("mpirun"):  # MPI passes descriptors on
        return words
    for index in range(len(words)):
        rank = words[index:]
        if can_start(rank):
            stub = [sys.executable, "-IS", str(FORKED_RANK), str(server_of(rank, env).path)]
            return [*words[:index], *stub, *rank]
    return words


# ---- the server


def place() -> list[str]:
    """Where this process is: its user, its namespaces, its control group. As in forked_rank.py."""
    names = [os.readlink(f"/proc/self/ns/{name}") for name in ("mnt", "net", "pid", "user")]
    return [str(os.geteuid()), *names, pathlib.Path("/proc/self/cgroup").read_text()]


def import_first(modules: list[str]) -> None:
    """What ranks import."""
    for name in ("numpy", *modules):
        if importlib.util.find_spec(name) is not None:  # a program may be about what is missing
            importlib.import_module(name)
    if hasattr(sys.modules.get("torch"), "compile"):  # then the first optimizer imports this
        import torch._dynamo  # noqa: F401
    gc.collect()
    gc.freeze()  # collections in the ranks need not visit (and so copy) a million objects of torch


def serve(jobs: socket.socket, listener: socket.socket, variables: dict[str, str]) -> dict:
    """Returns in each forked process, with its job. `variables`: those that this process has begun with."""
    statuses: dict[int, socket.socket] = {}
    here = place()
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready, _, _ = select.select([jobs, listener, ended, *statuses.values()], [], [])
        if ended in ready:
            os.read(ended, 4096)
            tell_ended(statuses)
        for pid, status in statuses.items():
            if status in ready:  # nobody sends anything: it has ended, and its rank is nobody's
                os.kill(pid, signal.SIGKILL)
        if jobs in ready:
            text, descriptors, _, _ = socket.recv_fds(jobs, PACKET_MAX, 2)
            if not text:
                os._exit(0)  # as ranks do: without the teardown of torch
            status = socket.socket(fileno=descriptors.pop())
            streams = [None, *descriptors, *descriptors]
        elif listener in ready:
            status, _ = listener.accept()
            text, descriptors, _, _ = socket.recv_fds(status, PACKET_MAX, 3)
            job = json.loads(text or "null")
            if job is None or read_at_start(job["env"]) != variables or job["place"] != here:
                close_all(status, *descriptors)
                continue
            streams = descriptors
        else:
            continue
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for number, stream in enumerate(streams):
                if stream is not None:
                    os.dup2(stream, number)
            close_all(ended, wake, *descriptors, jobs, listener, status, *statuses.values())
            return json.loads(text)
        close_all(*descriptors)
        statuses[pid] = status
        with contextlib.suppress(OSError):  # a launcher may have killed who asked; then the next turn kills the rank
            status.send(NUMBER.pack(pid))


def close_all(*them: int | socket.socket) -> None:
    """Descriptors and sockets."""
    for one in them:
        os.close(one) if isinstance(one, int) else one.close()


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
    if "processors" in job:
        os.sched_setaffinity(0, job["processors"])
    sys.stdout.reconfigure(line_buffering=False)
    sys.argv = job["command"]
    sys.path[0] = str(pathlib.Path(sys.argv[0]).parent)
    sys.modules["numpy"].random.seed()
    program = types.ModuleType("__main__")
    program.__file__ = sys.argv[0]
    program.__builtins__ = __builtins__
    sys.modules["__main__"] = program
    return program.__dict__


def run_program(names: dict) -> int:
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

    `status`: as `run_program` returned it; a negative one is the signal that ends the process.
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
    variables = read_at_start(dict(os.environ))
    import_first(sys.argv[3:])
    names = become(serve(*[socket.socket(fileno=int(word)) for word in sys.argv[1:3]], variables))
    leave(names, run_program(names))

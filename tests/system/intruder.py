"""Another user of the same machine, who may run Gradbus' programs but owns nothing of the test's user."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest
import rig as rigs

UID = 65534
PROGRAMS = ("gradbus", "gradbus-agent", "gradbus-server", "scripted_rank")
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")


@contextlib.contextmanager
def world_readable_folder():
    """A folder that every user may enter; the repository's may be closed to others."""
    with tempfile.TemporaryDirectory(prefix="gradbus-intruder-") as folder:
        path = pathlib.Path(folder)
        path.chmod(0o755)
        yield path


def _place(source: pathlib.Path, target: pathlib.Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy(source, target)


class Intruder:
    """Runs programs as uid 65534, from copies that it may read, in a folder of its own."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.bin = folder / "bin"
        self.home = folder / "home"
        self.bin.mkdir()
        self.home.mkdir(mode=0o700)
        os.chown(self.home, UID, UID)
        for program in PROGRAMS:
            _place(rigs.BIN / program, self.bin / program)
        _place((rigs.BIN.parent / "lib/libgradbus.so.0").resolve(), self.bin / "libgradbus.so.0")
        self.environment = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(self.bin), "HOME": str(self.home),
                            "TMPDIR": str(self.home)}

    def popen(self, *command: str, env: dict | None = None, **options) -> subprocess.Popen:
        """Starts one of its programs (a path relative to `bin`), as that user."""
        return subprocess.Popen(
            [str(self.bin / command[0]), *command[1:]], cwd=self.home, env={**self.environment, **(env or {})},
            user=UID, group=UID, extra_groups=[], text=True, **options)

    def run(self, *command: str, env: dict | None = None, timeout: float = rigs.DEADLINE_S) -> tuple[int, str]:
        """(exit status, output) of a program that ends by itself."""
        process = self.popen(*command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        output, _ = process.communicate(timeout=timeout)
        return process.returncode, output

    def rank(self, socket: str, rank: int, size: int, job: str, *steps: str) -> tuple[int, str]:
        """A rank of `job`, through the agent at `socket`."""
        return self.run("scripted_rank", *steps, env={
            "GRADBUS_SOCKET": socket, "GRADBUS_RANK": str(rank), "GRADBUS_SIZE": str(size), "GRADBUS_JOB": job})

    @contextlib.contextmanager
    def agent(self, coordinator: str, *arguments: str, shard: bool = False):
        """A daemon of its own; gives (process, socket, log)."""
        socket, log = self.home / "own.sock", self.home / "own.log"
        words = ["--shard"] if shard else ["--socket", str(socket)]
        with log.open("w") as file:
            process = self.popen("gradbus-agent", "--coordinator", coordinator, "--name", "intruder", *words,
                                 *arguments, stdout=file, stderr=file)
        try:
            yield process, str(socket), log
        finally:
            process.kill()
            process.wait()


@contextlib.contextmanager
def intruder():
    """An intruder, gone at the end."""
    with world_readable_folder() as folder:
        yield Intruder(folder)

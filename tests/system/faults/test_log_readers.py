"""Readers of a daemon's log that stop: nobody waits for them, and no record is lost in silence."""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import subprocess
import tempfile
import termios
import time
from pathlib import Path

import pytest
import rig as rigs


class FullPipe:
    """Its reader has fallen asleep."""

    def __init__(self):
        self.reader, self.writer = os.pipe()
        flags = fcntl.fcntl(self.writer, fcntl.F_GETFL)
        fcntl.fcntl(self.writer, fcntl.F_SETFL, flags | os.O_NONBLOCK)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(self.writer, b"=" * 4096)
        fcntl.fcntl(self.writer, fcntl.F_SETFL, flags)

    def go_on(self):
        """Reads again."""


class StoppedTerminal:
    """After Ctrl-S."""

    def __init__(self):
        self.reader, self.writer = pty.openpty()
        termios.tcflow(self.writer, termios.TCOOFF)

    def go_on(self):
        """Ctrl-Q."""
        termios.tcflow(self.writer, termios.TCOON)


def read_until(reader: int, wanted: str) -> str:
    """What comes until a line has `wanted`."""
    text, end = "", time.monotonic() + rigs.DEADLINE_S
    while not re.search(wanted, text):
        assert select.select([reader], [], [], end - time.monotonic())[0], f"no {wanted} in: {text[-2000:]}"
        text += os.read(reader, 65536).decode()
    return text


@contextlib.contextmanager
def cluster_with(output, program, extra):
    """A cluster whose daemon `program` writes its log there, in the given format."""
    with tempfile.TemporaryDirectory(prefix="gradbus-test-") as folder:
        rig = rigs.Rig(Path(folder))

        def start(name, *arguments):
            theirs = {"stderr": output.writer} if name == program else {}
            return rig.start_daemon(name, *arguments, *(extra if theirs else []), **theirs)

        try:
            rig.server = start("gradbus-server", "--listen", "127.0.0.1:0", "--lease-ms", "15000")
            coordinator = ["--coordinator", rig.server.ready["address"]]
            rig.agents.append(start("gradbus-agent", *coordinator, "--name", "node-0", "--bind", "127.0.0.1:0",
                                    "--socket", f"{folder}/node-0.sock"))  # fmt: skip
            yield rig
        finally:
            rig.stop()


@pytest.mark.parametrize("log_format", ["text", "json"])
@pytest.mark.parametrize("kind", [FullPipe, StoppedTerminal])
@pytest.mark.parametrize("program", ["gradbus-agent", "gradbus-server"])
def test_nobody_waits_for_a_reader(program, kind, log_format):
    output = kind()
    with cluster_with(output, program, ["--log-format", log_format, "--log-level", "debug"]) as rig:
        for number in range(3):
            for rank in rig.start_job(2, "red:x:1000:i64:sum", job=f"job-{number}"):
                status, out = rank.finish()
                assert status == 0, out
        daemon = rig.server if program == "gradbus-server" else rig.agents[0]
        assert daemon.alive()
        output.go_on()
        text = read_until(output.reader, "job-2.*\n")
        assert "job-0" in text and "job-1" in text


@pytest.mark.parametrize("program", ["gradbus-agent", "gradbus-server"])
def test_a_daemon_ends_though_nobody_reads(program):
    output = FullPipe()
    with cluster_with(output, program, []) as rig:
        daemon = rig.server if program == "gradbus-server" else rig.agents[0]
        daemon.kill(signal.SIGTERM)
        assert daemon.process.wait(timeout=rigs.DEADLINE_S) == 0


@pytest.mark.parametrize("program", ["gradbus-agent", "gradbus-server"])
def test_a_reader_that_has_gone(program):
    output = FullPipe()
    with cluster_with(output, program, []) as rig:
        os.close(output.reader)
        for rank in rig.start_job(2, "red:x:1000:i64:sum"):
            status, out = rank.finish()
            assert status == 0, out


def test_all_that_was_written_at_the_end_is_read():
    """As far as the reader takes it within a second."""
    reader, writer = os.pipe()
    with subprocess.Popen([rigs.BIN / "gradbus-server", "--listen", "127.0.0.1:0"], stderr=writer) as server:
        os.close(writer)
        text = read_until(reader, "listen.*\n")
        server.send_signal(signal.SIGTERM)
        while part := os.read(reader, 65536).decode():
            text += part
        assert server.wait(timeout=rigs.DEADLINE_S) == 0
    assert text.endswith("\n"), text

"""Descriptors that a client passes to an agent: their close() would wait, and the agent's lease would end."""

from __future__ import annotations

import array
import contextlib
import pathlib
import socket
import struct
import tempfile
import time

import pytest
import rig as rigs

LEASE_MS = 1500
LINGER_S = 60  # the kernel waits that long in close(), unless something prevents it


@contextlib.contextmanager
def lingering():
    """A connected socket whose peer does not read, full of data."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
        with theirs, ours:
            ours.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    ours.send(bytes(1 << 16))
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, LINGER_S))
            yield ours


def pass_to(client: socket.socket, passed: socket.socket, packets: int) -> None:
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [passed.fileno()]))
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        for _ in range(packets):
            client.sendmsg([bytes(64)], [rights])


def nested(passed: socket.socket) -> socket.socket:
    """A socket whose queue has the other."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        pass_to(ours, passed, 1)
    return theirs


@pytest.mark.parametrize("packets", [1, 8], ids=["read", "unread"])
@pytest.mark.parametrize("wrap", [lambda passed: passed.dup(), nested], ids=["plain", "nested"])
def test_sockets_that_linger(packets, wrap):
    """An agent reads a few packets per turn; the kernel closes what is left with the connection."""
    with tempfile.TemporaryDirectory(prefix="gradbus-test-") as folder:
        rig = rigs.Rig(pathlib.Path(folder))
        try:
            rig.server = rig.start_daemon("gradbus-server", "--listen", "127.0.0.1:0", "--lease-ms", str(LEASE_MS))
            rig.start_agent("node-0")
            ranks = rig.start_job(2, "steps:x:1000:3", f"await:{folder}/end", "steps:x:1000:3")
            with lingering() as passed, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
                client.connect(f"{folder}/node-0.sock")
                with wrap(passed) as copy:
                    pass_to(client, copy, packets)
                passed.close()  # the agent has the last one
                time.sleep(2 * LEASE_MS / 1000)
            assert [agent["name"] for agent in rig.status()["agents"]] == ["node-0"]
            (pathlib.Path(folder) / "end").touch()
            for rank in ranks:
                status, output = rank.finish()
                assert status == 0, output
            assert "silent" not in rig.server.text()
        finally:
            rig.stop()

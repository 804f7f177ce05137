"""Floods of connections to every metrics port, beside a job: it stays exact, and the ports recover."""

from __future__ import annotations

import contextlib
import resource
import socket
import struct

import pytest
import rig as rigs
from scrape import METRICS, get

pytestmark = pytest.mark.timeout(300)
CONNECTIONS = 10_000
FILES_MAX = 100  # descriptors that a flood may cost a daemon
DAEMONS = {"agent": "/metrics", "shard": "/metrics", "page": "/state.json"}  # the coordinator's port has the page
FLOODS = {
    "silent": b"",
    "slow-loris": b"GET {path} HTTP/1.1\r\nHost: x\r\nX-Slow: ",
    "never-reads": b"GET {path} HTTP/1.0\r\n\r\n",
}


@pytest.fixture(scope="module")
def cluster():
    """A coordinator, two agents and a shard with metrics ports, and a job that checks every sum."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with rigs.cluster(2, *METRICS, server_arguments=METRICS) as rig:
        rig.start_shard("shard-0", *METRICS)
        ranks = rig.start_job(2, "loop:x:5000:600:1", job="beside")
        rig.wait_until_running("beside")
        yield rig
        assert [rank.process.poll() for rank in ranks] == [None, None], "the job beside has ended"
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def operations(rig) -> int:
    """Of the job beside; each was checked by its ranks."""
    job = next(job for job in rig.status()["jobs"] if job["job"] == "beside")
    assert job["state"] == "running" and job["error"] == "", job
    return min(rank["operations"] for rank in job["ranks"])


def connect(address: str, said: bytes) -> socket.socket:
    """A connection that does not wait; what it says is lost if the daemon has not taken it."""
    host, port = address.split(":")
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    one.setblocking(False)
    one.connect_ex((host, int(port)))
    say(one, said)
    return one


def say(one: socket.socket, text: bytes) -> None:
    with contextlib.suppress(OSError):
        one.send(text)


@contextlib.contextmanager
def flood(address: str, said: bytes):
    """Connections that end together. Yields a function that sends one more byte on some of them."""
    held = [connect(address, said) for _ in range(CONNECTIONS)]
    try:
        yield lambda: [say(one, b"a") for one in held[:200]] if said else None
    finally:
        for one in held:
            one.close()


def answers(address: str) -> bool:
    """Whether a scrape succeeds now."""
    with contextlib.suppress(OSError):
        return get(address, "/metrics", timeout=3)[0] == 200
    return False


@pytest.mark.parametrize("kind", FLOODS)
@pytest.mark.parametrize("name", DAEMONS)
def test_a_flood_does_not_disturb_a_job(cluster, name, kind):
    """10,000 connections: the job makes progress, few descriptors are used, and the next scrape is answered."""
    daemon = {"agent": cluster.agents[0], "shard": cluster.shards[0], "page": cluster.server}[name]
    address = daemon.ready["metrics"]
    rigs.wait_until(lambda: answers(address), what="a scrape before the flood")
    files = daemon.open_files()
    said = FLOODS[kind].replace(b"{path}", DAEMONS[name].encode())
    with flood(address, said) as more:
        before = operations(cluster)

        def goes_on() -> bool:
            more()
            return operations(cluster) > before + 10

        rigs.wait_until(goes_on, what="progress of the job beside")
        assert daemon.open_files() < files + FILES_MAX
    rigs.wait_until(lambda: answers(address), what="a scrape after the flood")
    assert daemon.alive() and "GB-X001" not in daemon.text()

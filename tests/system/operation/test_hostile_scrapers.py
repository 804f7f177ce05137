"""Floods of connections to every port of metrics and health, beside a job: it stays exact, and the ports recover."""

from __future__ import annotations

import contextlib
import resource
import socket
import struct

import pytest
import rig as rigs
from scrape import METRICS, get

grpc = pytest.importorskip("grpc")
health_pb2 = pytest.importorskip("grpc_health.v1.health_pb2")
health_pb2_grpc = pytest.importorskip("grpc_health.v1.health_pb2_grpc")
pytestmark = pytest.mark.timeout(300)
CONNECTIONS = 10_000
FILES_MAX = 100  # descriptors that a flood may cost a daemon
HEALTH = ("--health-listen", "127.0.0.1:0")
# The coordinator's port of metrics has the page. Health is asked by gRPC.
PORTS = {"agent": "/metrics", "shard": "/metrics", "page": "/state.json", "health": ""}
FLOODS = {
    "silent": b"",
    "slow-loris": b"GET {path} HTTP/1.1\r\nHost: x\r\nX-Slow: ",
    "never-reads": b"GET {path} HTTP/1.0\r\n\r\n",
}
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
# A call of Watch whose answers are not read: SETTINGS; HEADERS with plain names and values; DATA of an empty request.
FIELDS = {":method": "POST", ":scheme": "http", ":path": "/grpc.health.v1.Health/Watch", ":authority": "x",
          "content-type": "application/grpc", "te": "trailers"}  # fmt: skip


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """HTTP/2, RFC 9113, section 4.1."""
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def literal(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


WATCH = (frame(4, 0, 0, b"") + frame(1, 4, 1, b"".join(b"\0" + literal(k) + literal(v) for k, v in FIELDS.items())) +
         frame(0, 1, 1, b"\0" * 5))  # fmt: skip
# A frame SETTINGS whose 4096 bytes come one by one.
SLOW_SETTINGS = PREFACE + frame(4, 0, 0, b"\0" * 4096)[:9]
HEALTH_FLOODS = {"silent": b"", "slow-loris": SLOW_SETTINGS, "never-reads": PREFACE + WATCH}


@pytest.fixture(scope="module")
def cluster():
    """A coordinator, two agents and a shard with metrics ports, and a job that checks every sum."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with rigs.cluster(2, *METRICS, *HEALTH, server_arguments=METRICS) as rig:
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
def flood(address: str, said: bytes, connections: int = CONNECTIONS):
    """Connections that end together. Yields a function that sends one more byte on some of them."""
    held = [connect(address, said) for _ in range(connections)]
    try:
        yield lambda: [say(one, b"a") for one in held[:200]] if said else None
    finally:
        for one in held:
            one.close()


def serves(address: str) -> bool:
    """Whether a probe by gRPC succeeds now."""
    with contextlib.suppress(grpc.RpcError), grpc.insecure_channel(address) as channel:
        answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=3)
        return answer.status == health_pb2.HealthCheckResponse.SERVING
    return False


def answers(name: str, address: str) -> bool:
    """Whether a scrape or a probe succeeds now."""
    if name == "health":
        return serves(address)
    with contextlib.suppress(OSError):
        return get(address, "/metrics", timeout=3)[0] == 200
    return False


def reported(name: str, daemon: rigs.Daemon) -> bool:
    """Whether the log has a line for slow clients of this port; there is one a minute at most."""
    address = daemon.ready["health" if name == "health" else "metrics"]
    option = f"--health-listen {address}" if name == "health" else f"--metrics-listen port {address.split(':')[1]}"
    return any("GB-D608 SLOW_CLIENTS" in line and f"{option}: " in line and " | next: " in line
               for line in daemon.text().splitlines())  # fmt: skip


def target(cluster, name: str, kind: str) -> tuple[rigs.Daemon, str, bytes]:
    """(daemon, address of its port, what hostile connections say)."""
    daemon = {"shard": cluster.shards[0], "page": cluster.server}.get(name, cluster.agents[0])
    if name == "health":
        return daemon, daemon.ready["health"], HEALTH_FLOODS[kind]
    return daemon, daemon.ready["metrics"], FLOODS[kind].replace(b"{path}", PORTS[name].encode())


@pytest.mark.parametrize("kind", FLOODS)
@pytest.mark.parametrize("name", PORTS)
def test_a_flood_does_not_disturb_a_job(cluster, name, kind):
    """10,000 connections: the job makes progress, few descriptors are used, and the next scrape is answered."""
    daemon, address, said = target(cluster, name, kind)
    rigs.wait_until(lambda: answers(name, address), what="an answer before the flood")
    files = daemon.open_files()
    with flood(address, said) as more:
        before = operations(cluster)

        def goes_on() -> bool:
            more()
            return operations(cluster) > before + 10

        rigs.wait_until(goes_on, what="progress of the job beside")
        assert daemon.open_files() < files + FILES_MAX
        if kind != "never-reads" or name == "health":  # an answer of HTTP fits into the kernel's buffer
            rigs.wait_until(lambda: reported(name, daemon), what="the line that names the port")
    rigs.wait_until(lambda: answers(name, address), what="an answer after the flood")
    assert daemon.alive() and "GB-X001" not in daemon.text()


@pytest.mark.parametrize("name", ["agent", "page"])
def test_probes_by_grpc_answer_while_the_port_of_metrics_is_flooded(cluster, name):
    """So do the probes of deploy/kubernetes."""
    daemon, address, said = target(cluster, name, "slow-loris")
    probed = daemon.ready["address" if name == "page" else "health"]
    with flood(address, said) as more:
        for _ in range(5):
            more()
            assert serves(probed)


FEW = {"health": 20, "agent": 8, "shard": 8, "page": 8}  # more than a port serves at a time


@pytest.mark.parametrize("kind", ["silent", "slow-loris"])
def test_slow_clients_are_cut_off(cluster, kind):
    """They stay and send a byte now and then; each port has deadlines, so an answer comes while they are there."""
    with contextlib.ExitStack() as held:
        waiting = {}
        for name in PORTS:
            _, address, said = target(cluster, name, kind)
            waiting[name] = (address, held.enter_context(flood(address, said, FEW[name])))

        def answered() -> bool:
            for name, (address, more) in list(waiting.items()):
                more()
                if answers(name, address):
                    del waiting[name]
            return not waiting

        rigs.wait_until(answered, what="answers beside slow clients")

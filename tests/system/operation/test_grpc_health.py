"""The gRPC health service of each daemon, asked by the client of gRPC's own package (grpcio-health-checking)."""

from __future__ import annotations

import contextlib
import queue
import signal
import socket
import subprocess
import threading

import pytest
import rig as rigs

grpc = pytest.importorskip("grpc")
pytest.importorskip("grpc_health")
from grpc_health.v1 import health_pb2, health_pb2_grpc  # noqa: E402
from test_service_manager import engine_of, stopped_thread  # noqa: E402

HEALTH = ("--health-listen", "127.0.0.1:0")
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
ROLES = ("agent", "shard", "coordinator")
pytestmark = pytest.mark.timeout(120)


def start_coordinator(rig, address: str = "127.0.0.1:0") -> rigs.Daemon:
    return rig.start_daemon("gradbus-server", "--role=coordinator", "--listen", address, "--lease-ms", "15000")


@pytest.fixture
def cluster():
    """A coordinator, an agent and a shard with a token, which this client does not have."""
    with rigs.cluster(1, *HEALTH) as rig:
        rig.start_shard("shard-0", *HEALTH)
        yield rig


def address_of(rig, role: str) -> str:
    if role == "coordinator":
        return rig.server.ready["address"]
    return (rig.agents if role == "agent" else rig.shards)[0].ready["health"]


@contextlib.contextmanager
def client(address: str):
    with grpc.insecure_channel(address) as channel:
        yield health_pb2_grpc.HealthStub(channel)


def check(address: str, service: str = "") -> int | grpc.StatusCode:
    """The state of a service, or the code of the refusal."""
    try:
        with client(address) as stub:
            return stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=10).status
    except grpc.RpcError as refused:
        return refused.code()


class Watcher:
    """Follows one service of a daemon, as a load balancer does."""

    def __init__(self, stub, service: str = "") -> None:
        self.told: queue.Queue[int] = queue.Queue()
        self.call = stub.Watch(health_pb2.HealthCheckRequest(service=service), timeout=rigs.DEADLINE_S)
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        with contextlib.suppress(grpc.RpcError):
            for answer in self.call:
                self.told.put(answer.status)

    def next(self) -> int:
        return self.told.get(timeout=rigs.DEADLINE_S)


@pytest.mark.parametrize("role", ROLES)
def test_each_daemon_serves(cluster, role):
    address = address_of(cluster, role)
    rigs.wait_until(lambda: check(address) == SERVING, what="a daemon that serves")
    assert check(address, "liveness") == SERVING
    assert check(address, "gradbus.v1.Nothing") == grpc.StatusCode.NOT_FOUND


def test_other_methods_of_the_health_port_are_refused(cluster):
    with grpc.insecure_channel(address_of(cluster, "agent")) as channel:
        call = channel.unary_unary("/gradbus.v1.Coordinator/StopJob")
        with pytest.raises(grpc.RpcError) as refused:
            call(b"", timeout=10)
    assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("role", ["agent", "shard"])
def test_a_watcher_hears_that_the_coordinator_is_lost_and_back(cluster, role):
    """Only readiness changes: a restart of the daemon would not help."""
    listen = cluster.server.ready["address"]
    address = address_of(cluster, role)
    with client(address) as stub:
        watcher = Watcher(stub)
        while (state := watcher.next()) != SERVING:  # it has attached just now, perhaps
            assert state == NOT_SERVING
        cluster.server.kill()
        cluster.server.process.wait()
        assert watcher.next() == NOT_SERVING
        assert check(address, "liveness") == SERVING
        cluster.server = start_coordinator(cluster, listen)
        assert watcher.next() == SERVING


@pytest.mark.parametrize("role", ROLES)
def test_a_watcher_hears_the_end_of_a_daemon(cluster, role):
    """SIGTERM: NOT_SERVING is the last word, and the daemon does not wait for its watchers."""
    daemon = {"agent": cluster.agents[0], "shard": cluster.shards[0], "coordinator": cluster.server}[role]
    with client(address_of(cluster, role)) as stub:
        watcher = Watcher(stub)
        while watcher.next() != SERVING:
            pass
        daemon.kill(signal.SIGTERM)
        assert watcher.next() == NOT_SERVING
        assert daemon.process.wait(timeout=20) == 0


def test_a_drained_node_serves_its_running_jobs(cluster):
    """A drain keeps new jobs away. It is no failure: a probe must not restart the daemon."""
    command = [rigs.BIN / "gradbus", "drain", "node-0", "--coordinator", cluster.server.ready["address"]]
    subprocess.run(command, check=True, capture_output=True, timeout=rigs.DEADLINE_S)
    assert check(address_of(cluster, "agent")) == SERVING


def test_a_stuck_engine_is_not_alive(cluster):
    agent = cluster.agents[0]
    with client(agent.ready["health"]) as stub:
        watcher = Watcher(stub, "liveness")
        assert watcher.next() == SERVING
        with stopped_thread(engine_of(agent)):
            assert watcher.next() == NOT_SERVING
            assert check(agent.ready["health"]) == NOT_SERVING
        assert watcher.next() == SERVING


@pytest.mark.parametrize("words, reason", [("nonsense", "GB-F100"), ("192.0.2.1:9400", "GB-D603")])
def test_an_address_that_cannot_be_used_is_one_clear_line(tmp_path, words, reason):
    done = subprocess.run([rigs.BIN / "gradbus-agent", "--socket", str(tmp_path / "s"), "--bind", "127.0.0.1:0",
                           "--health-listen", words], capture_output=True, text=True, check=False, timeout=30)
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1 and reason in last and "--health-listen" in last and words in last, done.stderr
    assert "| next: " in last


def test_two_daemons_do_not_share_a_port(cluster):
    taken = address_of(cluster, "agent")
    done = subprocess.run([rigs.BIN / "gradbus-agent", "--socket", str(cluster.folder / "b"), "--bind", "127.0.0.1:0",
                           "--health-listen", taken], capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 1 and "GB-D603 CANNOT_LISTEN" in done.stderr and "in use" in done.stderr, done.stderr


def test_garbage_ends_a_connection_only(cluster):
    address = address_of(cluster, "agent")
    host, port = address.split(":")
    for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\0" * 4000, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 4000):
        with socket.create_connection((host, int(port)), timeout=20) as one:
            one.sendall(garbage)
            with contextlib.suppress(ConnectionResetError):
                while one.recv(4096):
                    pass
    assert check(address) in (SERVING, NOT_SERVING)
    assert cluster.agents[0].alive()

"""What a daemon tells systemd: readiness, its state, a watchdog that follows real progress, and reloads."""

import contextlib
import ctypes
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import time

import pytest
import rig as rigs
from conftest import PYTHONS, RANKS, assert_all_ok
from scrape import METRICS, get, scrape

WATCHDOG_S = 2


class Manager:
    """The socket on which systemd hears its services."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.path = folder / "notify"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.socket.bind(str(self.path))
        self.lines: list[str] = []

    def hear(self) -> list[str]:
        """All lines so far."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self.lines += self.socket.recv(4096).decode().splitlines()
        return self.lines

    def wait_for(self, pattern: str, times: int = 1) -> None:
        """Waits for lines that match."""
        rigs.wait_until(lambda: sum(bool(re.fullmatch(pattern, line)) for line in self.hear()) >= times,
                        what=f"{pattern} from the daemon, which said {self.lines}")


@contextlib.contextmanager
def managed(folder: pathlib.Path):
    """The daemons that start inside have a service manager."""
    manager = Manager(folder)
    os.environ.update(NOTIFY_SOCKET=str(manager.path), WATCHDOG_USEC=str(WATCHDOG_S * 1_000_000))
    try:
        yield manager
    finally:
        del os.environ["NOTIFY_SOCKET"], os.environ["WATCHDOG_USEC"]
        manager.socket.close()


@pytest.fixture
def cluster():
    with rigs.cluster(0) as rig:
        yield rig


@pytest.mark.parametrize("role", ["agent", "shard", "coordinator"])
def test_a_daemon_tells_its_state(cluster, role, tmp_path):
    with managed(tmp_path) as manager:
        daemon = {
            "agent": lambda: cluster.start_agent("node-0"),
            "shard": lambda: cluster.start_shard("shard-0"),
            "coordinator": lambda: cluster.start_daemon(
                "gradbus-server", "--role=coordinator", "--listen", "127.0.0.1:0"),
        }[role]()
        manager.wait_for("READY=1")
        manager.wait_for("STATUS=serving.*")
        manager.wait_for("WATCHDOG=1", times=3)
        daemon.kill(signal.SIGHUP)
        manager.wait_for("RELOADING=1")
        manager.wait_for("READY=1", times=2)
        daemon.kill(signal.SIGTERM)
        assert daemon.process.wait(timeout=20) == 0
        assert "STOPPING=1" in manager.hear()


@contextlib.contextmanager
def stopped_thread(thread: int):
    """Stops one thread of another process, as a debugger does."""
    libc = ctypes.CDLL(None, use_errno=True)
    seize, interrupt, detach = 0x4206, 0x4207, 17
    if libc.ptrace(seize, thread, None, None) != 0:
        pytest.skip(f"ptrace is not allowed here: {os.strerror(ctypes.get_errno())}")
    libc.ptrace(interrupt, thread, None, None)
    os.waitpid(thread, 0x40000000)  # __WALL
    try:
        yield
    finally:
        libc.ptrace(detach, thread, None, None)


def test_no_watchdog_message_while_the_engine_is_stuck(cluster, tmp_path):
    with managed(tmp_path) as manager:
        agent = cluster.start_agent("node-0", *METRICS)
        manager.wait_for("WATCHDOG=1")
        address = agent.ready["metrics"]
        with stopped_thread(engine_of(agent)):
            rigs.wait_until(lambda: get(address, "/healthz")[0] == 503, what="an agent that is not healthy")
            assert "GB-X002 STUCK: the engine thread" in get(address, "/healthz")[1]
            assert scrape(agent).value("gradbus_thread_stuck_seconds", thread="engine") >= 10
            assert scrape(agent).value("gradbus_thread_stuck_seconds", thread="conductor") < 5
            manager.wait_for("STATUS=GB-X002 STUCK.*")
            told = manager.hear().count("WATCHDOG=1")
            time.sleep(WATCHDOG_S)
            assert manager.hear().count("WATCHDOG=1") == told
        manager.wait_for("WATCHDOG=1", times=told + 1)
        assert get(address, "/healthz") == (200, "ok\n")
        assert scrape(agent).value("gradbus_errors_total", code="X002") == 1


def engine_of(agent) -> int:
    """The agent's engine thread, by its name."""
    for task in pathlib.Path(f"/proc/{agent.pid}/task").iterdir():
        if (task / "comm").read_text().strip() == "engine":
            return int(task.name)
    raise AssertionError("no thread is called engine")


def write_config(path: pathlib.Path, section: str, **values: str) -> None:
    path.write_text(f"[{section}]\n" + "".join(f'{key} = "{value}"\n' for key, value in values.items()))


def test_a_hangup_applies_the_log_level_and_names_what_needs_a_restart(cluster, tmp_path):
    config = tmp_path / "agent.toml"
    write_config(config, "agent", log_level="warn", bind="127.0.0.1:0")
    agent = cluster.start_daemon(
        "gradbus-agent", "--config", str(config), "--coordinator", cluster.server.ready["address"],
        "--name", "node-0", "--socket", str(tmp_path / "agent.sock"))
    cluster.agents.append(agent)
    assert " I gradbus-agent" not in agent.text()
    write_config(config, "agent", log_level="info", bind="127.0.0.2:0")
    agent.kill(signal.SIGHUP)
    rigs.wait_until(lambda: "reload: --log-level is now" in agent.text(), what="the new log level")
    assert 'reload: --bind "127.0.0.2:0" needs a restart; "127.0.0.1:0" is still used' in agent.text()
    config.write_text("[agent]\nlog_levle = 1\n")
    agent.kill(signal.SIGHUP)
    rigs.wait_until(lambda: "reload: nothing has changed: GB-F1" in agent.text(), what="the refusal")
    assert "did you mean log_level" in agent.text().replace('"', "")
    assert agent.alive()


def test_a_hangup_takes_a_new_token(tmp_path):
    """The coordinator first, then agent and shard: meanwhile their running streams stay."""
    token = rigs.make_token_file(tmp_path / "token")
    old = os.environ["GRADBUS_TOKEN_FILE"]
    os.environ["GRADBUS_TOKEN_FILE"] = str(token)
    try:
        with rigs.cluster(1, shards=1) as rig:
            token.unlink()
            rigs.make_token_file(token)
            rig.server.kill(signal.SIGHUP)
            rigs.wait_until(lambda: "use the new cluster token" in rig.server.text(), what="the coordinator")
            assert len(rig.status()["agents"]) == 2  # the command proves the new token
            for daemon in (rig.agents[0], rig.shards[0]):
                daemon.kill(signal.SIGHUP)
                rigs.wait_until(lambda of=daemon: "use the new cluster token" in of.text(), what="agent and shard")
            assert [node["name"] for node in rig.status()["agents"]] == ["node-0", "shard-0"]
            results = [rank.finish() for rank in rig.start_job(2, "steps:x:100:10")]
            assert [status for status, _ in results] == [0, 0], results
            token.chmod(0o644)
            rig.agents[0].kill(signal.SIGHUP)
            rigs.wait_until(lambda: "reload: nothing has changed: GB-F104" in rig.agents[0].text(),
                            what="a token that others can read is refused")
    finally:
        os.environ["GRADBUS_TOKEN_FILE"] = old


def test_json_logs_have_job_rank_and_code(tmp_path):
    with rigs.cluster(1, "--log-format", "json", server_arguments=("--log-format", "json")) as rig:
        ranks = rig.start_job(2, "steps:x:100:5", "sleep:1", "kill:9", job="digits")
        for rank in ranks:
            rank.finish()
        rigs.wait_until(lambda: "GB-P101" in rig.agents[0].text(), what="the loss of a rank")
        spoiled = [rig.start_rank(rank, 2, "red:x:10:f32:sum", "spoil:kind" if rank == 1 else "sleep:0", "barrier",
                                  job="spoiled") for rank in range(2)]  # fmt: skip
        for rank in spoiled:
            rank.finish()
        rigs.wait_until(lambda: "GB-S210" in rig.agents[0].text(), what="the end of the spoiled rank")
        lines = [json.loads(line) for daemon in (rig.server, rig.agents[0]) for line in daemon.text().splitlines()]
        assert all({"time", "level", "program", "pid", "message"} <= set(line) for line in lines)
        lost = next(line for line in lines if line.get("code") == "GB-P101")
        assert lost["job"] == "digits" and lost["rank"] in (0, 1)
        about = [line for line in lines if re.search(r"\brank \d", line["message"])]
        assert {("digits", "GB-P101"), ("spoiled", "GB-S210")} <= {(line["job"], line.get("code")) for line in about}
        assert all(line["job"] in ("digits", "spoiled") and line["rank"] in (0, 1) for line in about), about


ABOUT_A_JOB = re.compile(r'\brank \d|\btensor "|\bshard \d+ of|\bsnapshot|\bjob\b(?!s)|digits')


def test_each_json_line_about_a_job_names_it(tmp_path):
    """A job on shards: snapshots and a gradient that is not finite. Another one, with a rank that dies."""
    options = ("--log-format", "json")
    with rigs.cluster(2, *options, server_arguments=options) as rig:
        rig.start_shard("shard-0", *options, "--snapshots", str(tmp_path))
        program = [str(PYTHONS["newest"]), str(RANKS / "operation/not_finite.py")]
        trained = rig.start_job(2, program=program, job="digits", env={"OMP_NUM_THREADS": "1"})
        assert_all_ok([rank.finish() for rank in trained])
        for rank in rig.start_job(2, "red:x:1000:f32:sum", "kill:9", job="digits-2"):
            rank.finish()
        daemons = [rig.server, *rig.agents, *rig.shards]
        rigs.wait_until(lambda: all("digits-2" in daemon.text() for daemon in daemons[:3]), what="the end of the job")
        rigs.wait_until(lambda: "a snapshot" in rig.shards[0].text(), what="a snapshot")
        lines = [json.loads(line) for daemon in daemons for line in daemon.text().splitlines()]
    about = [line for line in lines if ABOUT_A_JOB.search(line["message"])]
    assert any("no step is made" in line["message"] for line in about), lines
    assert [line for line in about if line.get("job") not in ("digits", "digits-2")] == []
    ranks = [line for line in about if re.search(r"\brank \d", line["message"])]
    assert ranks and all(line["rank"] in (0, 1) for line in ranks), ranks


def test_an_unknown_log_format_is_one_clear_line():
    done = subprocess.run([rigs.BIN / "gradbus-server", "--log-format", "xml"], capture_output=True, text=True,
                          check=False, timeout=30)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and 'GB-F100' in done.stderr and '"xml"' in done.stderr

"""Starts real daemons and ranks for the system tests, and stops them by their own process ids.

Nothing here is a stand-in: gradbus-server, gradbus-agent and scripted_rank come from the build folder
named by GRADBUS_BIN (default build/release/bin). Daemons and commands prove the cluster token in the file
that GRADBUS_TOKEN_FILE names, which this module makes.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import secrets
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import fork_server

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("GRADBUS_BIN", REPOSITORY / "build/release/bin"))
LOG_LINES = 40  # of each daemon, in the report of a test that failed
DEADLINE_S = 60  # for what must happen; a machine may have other things to do


@functools.cache
def why_no_namespaces() -> str:
    """Why no network namespace can be made here; empty where one can."""
    if shutil.which("ip", path="/usr/sbin:/sbin:/usr/bin:/bin") is None:
        return "iproute2 is not installed"
    probe = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True, check=False)
    return "" if probe.returncode == 0 else f"not root: {probe.stderr.strip()}"


def make_token_file(path: pathlib.Path) -> pathlib.Path:
    """A file with a new cluster token, for its owner alone."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secrets.token_hex(32) + "\n")
    return path


_token_folder = tempfile.mkdtemp(prefix="gradbus-token-")
atexit.register(shutil.rmtree, _token_folder, ignore_errors=True)
TOKEN_FILE = make_token_file(pathlib.Path(_token_folder) / "token")
os.environ["GRADBUS_TOKEN_FILE"] = str(TOKEN_FILE)


@dataclasses.dataclass
class Daemon:
    """A running program that has said it is ready."""

    process: subprocess.Popen
    ready: dict
    log: pathlib.Path

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def text(self) -> str:
        """What it has logged."""
        return self.log.read_text(errors="replace")  # a killed daemon may end within a character

    def kill(self, sig: int = signal.SIGKILL) -> None:
        """Sends a signal."""
        self.process.send_signal(sig)

    def alive(self) -> bool:
        """Whether it runs."""
        return self.process.poll() is None

    def open_files(self) -> int:
        """How many descriptors it holds."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def segments(self) -> int:
        """How many of its mappings are shared segments of jobs."""
        return pathlib.Path(f"/proc/{self.pid}/maps").read_text().count("memfd:gradbus")


@dataclasses.dataclass
class Rank:
    """A rank that was started."""

    process: subprocess.Popen | fork_server.ForkedProcess
    number: int

    def finish(self, timeout: float = DEADLINE_S) -> tuple[int, str]:
        """(exit status, all it printed)."""
        out, _ = self.process.communicate(timeout=timeout)
        return self.process.returncode, out


class Rig:
    """One cluster of daemons in a folder of its own."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.server: Daemon | None = None
        self.agents: list[Daemon] = []
        self.shards: list[Daemon] = []
        self.ranks: list[Rank] = []
        self.server_arguments: list[str] = []
        self.within: list[str] = []  # words in front of a daemon's command: into a namespace

    def start_daemon(self, program: str, *arguments: str, stderr: int | None = None) -> Daemon:
        """Starts a daemon and waits for its --ready-fd line. It logs to ``stderr`` in place of a file."""
        reader, writer = os.pipe()
        log = self.folder / f"{program}-{time.monotonic_ns()}.log"
        with log.open("w") as file:
            process = subprocess.Popen(
                [*self.within, BIN / program, *arguments, "--ready-fd", str(writer)],
                pass_fds=[writer], stdout=file, stderr=file if stderr is None else stderr)
        os.close(writer)
        try:
            return Daemon(process, self._read_ready(reader, process, log), log)
        finally:
            os.close(reader)

    @staticmethod
    def _read_ready(reader: int, process: subprocess.Popen, log: pathlib.Path) -> dict:
        ready, _, _ = select.select([reader], [], [], DEADLINE_S)
        line = os.read(reader, 4096) if ready else b""
        if not line:
            process.kill()
            process.wait()
            raise AssertionError(f"not ready: {process.args}: {log.read_text()}")
        return json.loads(line)

    def start(self, agents: int = 1, *agent_arguments: str) -> Rig:
        """A coordinator and agents that it knows."""
        # A death is seen by the end of a connection; a lease only tells how long a daemon may starve.
        lease = [] if "--lease-ms" in self.server_arguments else ["--lease-ms", "15000"]
        self.server = self.start_daemon(
            "gradbus-server", "--role=coordinator", "--listen", "127.0.0.1:0", *lease, *self.server_arguments)
        for index in range(agents):
            self.start_agent(f"node-{index}", *agent_arguments)
        return self

    def start_agent(self, name: str, *arguments: str) -> Daemon:
        """One more agent; it listens on the loopback unless `arguments` say otherwise."""
        bind = [] if "--bind" in arguments else ["--bind", "127.0.0.1:0"]
        agent = self.start_daemon(
            "gradbus-agent", "--coordinator", self.server.ready["address"], "--name", name,
            "--socket", str(self.folder / f"{name}.sock"), *bind, *arguments)
        self.agents.append(agent)
        return agent

    def start_shard(self, name: str, *arguments: str) -> Daemon:
        """One more parameter-server shard."""
        shard = self.start_daemon(
            "gradbus-server", "--role=shard", "--coordinator", self.server.ready["address"], "--name", name,
            "--bind", "127.0.0.1:0", *arguments)
        self.shards.append(shard)
        return shard

    def start_rank(self, rank: int, size: int, *steps: str, job: str = "job", agent: int | None = None,
                   program: list[str] | None = None, env: dict | None = None, **options) -> Rank:
        """Starts one rank; ranks fill the agents in blocks unless `agent` says which."""
        if agent is None:
            agent = min(rank, size - 1) * len(self.agents) // size if self.agents else 0
        socket = self.agents[agent].ready["socket"] if self.agents else str(self.folder / "none.sock")
        variables = {**os.environ, "GRADBUS_SOCKET": socket, "GRADBUS_RANK": str(rank),
                     "GRADBUS_SIZE": str(size), "GRADBUS_JOB": job, **(env or {})}
        command = [str(word) for word in [*(program or [BIN / "scripted_rank"]), *steps]]
        if set(options) <= {"cwd"} and fork_server.can_start(command):
            process = fork_server.start(command, variables, options.get("cwd"))
        else:
            process = subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                       text=True, **options)
        self.ranks.append(Rank(process, rank))
        return self.ranks[-1]

    def start_job(self, size: int, *steps: str, **options) -> list[Rank]:
        """All ranks of a job with the same steps."""
        return [self.start_rank(rank, size, *steps, **options) for rank in range(size)]

    def wait_for_rank(self, rank: int, job: str = "job") -> None:
        """Waits until the coordinator has that rank of the job."""
        wait_until(lambda: rank in self._ranks_of(job), what=f"rank {rank} of {job}")

    def wait_until_running(self, job: str = "job") -> None:
        """Waits until all ranks of the job have joined."""
        wait_until(lambda: any(one["job"] == job and one["state"] == "running"
                               for one in self.status().get("jobs", [])), what=f"the start of {job}")

    def status(self) -> dict:
        """What `gradbus status --json` says; empty when the coordinator did not answer."""
        command = [*self.within, BIN / "gradbus", "status", "--json", "--coordinator", self.server.ready["address"]]
        status = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False).stdout
        return json.loads(status) if status else {}

    def newest_job(self) -> dict:
        """What status() says of the job that was started last."""
        return min(self.status()["jobs"], key=lambda job: job["age_ms"])

    def _print_logs(self) -> None:
        for daemon in reversed(self._daemons()):
            tail = "".join(daemon.text().splitlines(keepends=True)[-LOG_LINES:])
            print(f"--- {daemon.log.name}, status {daemon.process.poll()}\n{tail}", end="")
        for rank in self.ranks:
            with contextlib.suppress(Exception):  # others may have read it
                if rank.process.poll() is not None:
                    print(f"--- rank {rank.number}, status, output: {rank.finish(timeout=1)}")

    def _ranks_of(self, job: str) -> list[int]:
        jobs = self.status().get("jobs", [])
        return [rank["rank"] for one in jobs if one["job"] == job for rank in one["ranks"]]

    def stop(self) -> None:
        """Ends everything this rig started. After an error it first prints the logs of daemons and output of ranks.

        No test may pass in which a daemon has logged a defect of its own.
        """
        if sys.exc_info()[1] is not None:
            self._print_logs()
        self._end_all()
        defects = [line for daemon in self._daemons() for line in daemon.text().splitlines() if "GB-X001" in line]
        if sys.exc_info()[1] is None:
            assert not defects, defects[:10]

    def _daemons(self) -> list[Daemon]:
        return [daemon for daemon in (*self.agents, *self.shards, self.server) if daemon is not None]

    def _end_all(self) -> None:
        for rank in self.ranks:
            if rank.process.poll() is None:
                rank.process.kill()
            rank.process.wait()
            if rank.process.stdout:
                rank.process.stdout.close()
        for daemon in self._daemons():
            if daemon.alive():
                daemon.kill(signal.SIGCONT)
                daemon.kill(signal.SIGTERM)
            try:
                daemon.process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.process.wait()
                raise AssertionError(f"did not stop on SIGTERM: {daemon.process.args}") from None


@contextlib.contextmanager
def cluster(agents: int = 1, *agent_arguments: str, shards: int = 0, server_arguments: tuple[str, ...] = ()):
    """A running rig; stopped and cleaned up at the end."""
    with tempfile.TemporaryDirectory(prefix="gradbus-test-") as folder:
        rig = Rig(pathlib.Path(folder))
        rig.server_arguments = list(server_arguments)
        try:
            rig.start(agents, *agent_arguments)
            for index in range(shards):
                rig.start_shard(f"shard-{index}")
            yield rig
        finally:
            rig.stop()


def wait_until(condition, timeout: float = DEADLINE_S, what: str = "condition") -> float:
    """Polls until `condition()` is true; how many seconds that took."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < timeout, f"waited {timeout} s for: {what}"
        time.sleep(0.005)
    return time.monotonic() - started

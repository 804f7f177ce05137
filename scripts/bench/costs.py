"""What the exchange costs in CPU time, and what the daemon costs while nothing happens.

CPU seconds per GB is a difference of two runs that differ only in their number of iterations, so starting
up, warming up and ending cancel out. It counts every process: ranks, daemons and launchers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import secrets
import select
import subprocess
import tempfile
import time
from collections.abc import Iterator

from bench import entrants, process
from bench.campaign import Clock, with_files
from bench.entrants import Command, Peer
from bench.results import Entry

SIZE = 64 << 20
FEW = 5
READY_DEADLINE_S = 20
IDLE_SECONDS = 10.0
# A rank that is in a job with a registered tensor, and does nothing until its input ends.
IDLE_RANK = """
import sys, torch, gradbus.torch as gradbus
gradbus.init()
gradbus.allreduce(torch.ones(1 << 20), name="idle")
print("ready", flush=True)
sys.stdin.read()
gradbus.shutdown()
"""


def gradbus_command(iterations: int, *options: str) -> Command:
    """Gradbus, without checking each result: that would be counted."""
    return Command((entrants.GRADBUS, "bench", "all_reduce", *options, "-b", str(SIZE), "-e", str(SIZE),
                    "-f", "2", "-n", str(iterations), "-w", "1", "--json", entrants.JSON_FILE))


def peer_command(peer: Peer, iterations: int) -> Command:
    """A peer, with no bound on the seconds."""
    return peer.command(2, (iterations, 1), 0, entrants.sizes_words([SIZE]))


def cpu_seconds(command: Command, clock: Clock) -> tuple[float, str]:
    """(CPU seconds, what went wrong) of one run."""
    if clock.left() <= 0:
        return 0.0, "no time was left for it"
    with tempfile.TemporaryDirectory(prefix="gradbus-bench-") as folder:
        environment = {**dict(command.environment), "TMPDIR": folder}
        done = process.run(with_files(command, folder), min(command.deadline_s, clock.left()), environment)
        return done.cpu_seconds, done.problem


def cpu_per_gb(few: Command, many: Command, iterations: int, clock: Clock) -> Entry:
    """{"cpu_s_per_gb"} or {"problem"}: from a run with FEW iterations and one with so many more."""
    first, problem = cpu_seconds(few, clock)
    second, problem_too = cpu_seconds(many, clock)
    if problem or problem_too:
        return {"problem": problem or problem_too}
    return {"cpu_s_per_gb": max(0.0, second - first) / (iterations * SIZE / 1e9)}


def transfer_costs(peers: list[Peer], clock: Clock) -> list[Entry]:
    """CPU seconds per GB of Gradbus and its peers, two ranks."""
    found = []
    ours = (("Gradbus", ("--ranks", "2", "--agents", "1")),
            ("Gradbus, private buffers", ("--ranks", "2", "--agents", "1", "--private")),
            ("Gradbus, two agents", ("--ranks", "2", "--agents", "2")),
            ("Gradbus, two agents, TCP", ("--ranks", "2", "--agents", "2")))
    for name, options in ours:
        few, many = (gradbus_command(count, *options) for count in (FEW, FEW + 100))
        if name.endswith("TCP"):
            few, many = (dataclasses.replace(one, environment=entrants.SOCKETS_ONLY) for one in (few, many))
        cost = cpu_per_gb(few, many, 100, clock)
        found.append({"name": name, **cost})
    for peer in peers:
        cost = cpu_per_gb(peer_command(peer, FEW), peer_command(peer, FEW + 30), 30, clock)
        found.append({"name": peer.name, **cost})
    return found


def read_line(descriptor: int, what: str) -> str:
    """The first line that comes, within the deadline."""
    ready, _, _ = select.select([descriptor], [], [], READY_DEADLINE_S)
    line = os.read(descriptor, 4096).decode() if ready else ""
    if not line:
        raise RuntimeError(f"{what} was not ready in {READY_DEADLINE_S} s")
    return line


@contextlib.contextmanager
def daemon(program: str, *arguments: str) -> Iterator[tuple[int, Entry]]:
    """(process id, what it said when ready) of a daemon that runs inside the block."""
    reader, writer = os.pipe()
    path = str(pathlib.Path(entrants.GRADBUS).with_name(program))
    try:
        started = subprocess.Popen([path, *arguments, "--ready-fd", str(writer)], pass_fds=[writer],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, text=True, start_new_session=True)
    except OSError:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    try:
        yield started.pid, json.loads(read_line(reader, program))
    finally:
        os.close(reader)
        process.stop(started)


@contextlib.contextmanager
def idle_job(socket: str) -> Iterator[None]:
    """A job of two ranks that wait for nothing while the block runs."""
    variables = {**os.environ, "GRADBUS_SOCKET": socket, "GRADBUS_SIZE": "2", "GRADBUS_JOB": "idle"}
    ranks = [subprocess.Popen([entrants.PYTHON, "-c", IDLE_RANK], env={**variables, "GRADBUS_RANK": str(rank)},
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                              start_new_session=True) for rank in range(2)]
    try:
        for rank in ranks:
            read_line(rank.stdout.fileno(), "a rank of the idle job")
        yield
    finally:
        for rank in ranks:
            process.stop(rank)
            rank.stdin.close()
            rank.stdout.close()


def busy_share(pid: int, seconds: float) -> float:
    """Share of a core that a process uses over so many seconds; resolution 10 ms of CPU time."""
    ticks = os.sysconf("SC_CLK_TCK")

    def used() -> float:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / ticks

    before = used()
    time.sleep(seconds)
    return (used() - before) / seconds


def idle_costs(seconds: float = IDLE_SECONDS) -> Entry:
    """Share of a core the agent uses without a job and with an idle one, or {"problem"}."""
    with tempfile.TemporaryDirectory(prefix="gradbus-bench-") as folder:
        try:
            token = pathlib.Path(folder) / "token"
            token.touch(mode=0o600)
            token.write_text(secrets.token_hex(32))
            proof = ("--token-file", str(token))
            with daemon("gradbus-server", "--role=coordinator", "--listen", "127.0.0.1:0", *proof) as (_, server):
                arguments = (*proof, "--coordinator", server["address"], "--name", "node-0", "--bind", "127.0.0.1:0",
                             "--socket", f"{folder}/agent.sock")
                with daemon("gradbus-agent", *arguments) as (pid, agent):
                    time.sleep(1.0)  # what starting up costs is not idling
                    found = {"no_job": busy_share(pid, seconds)}
                    with idle_job(agent["socket"]):
                        time.sleep(1.0)
                        return {**found, "idle_job": busy_share(pid, seconds)}
        except (OSError, RuntimeError, ValueError) as error:
            return {"problem": str(error)}

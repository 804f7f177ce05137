#!/usr/bin/env python3
"""Measures how much hostile clients slow down a job: step time with them divided by step time without them.

    .venv/bin/python scripts/disturbance.py [--rounds 6] [--seconds 2] [--markdown]

Two ranks on two agents compute 5 ms and sum 1 MB in each step, and check every sum. Windows with and
without the hostile clients alternate, so that slow changes of the machine do not count. Needs the release build.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import resource
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPOSITORY / "tests/system"), str(REPOSITORY / "tests/system/operation")]

COUNT, COMPUTE_S = 250_000, 0.005
METRICS = ("--metrics-listen", "127.0.0.1:0")
HEALTH = ("--health-listen", "127.0.0.1:0")


def rank(file: str) -> None:
    """Steps until it is ended; (end, length) of each goes to `file`."""
    import gradbus
    import numpy

    gradbus.init()
    values = numpy.ones(COUNT, dtype=numpy.float32)
    matrix = numpy.ones((64, 64), dtype=numpy.float32)
    with open(file, "w", buffering=1) as log:
        while True:
            begin = time.perf_counter()
            while time.perf_counter() - begin < COMPUTE_S:
                matrix @ matrix
            assert (gradbus.allreduce(values, op=gradbus.Sum, name="gradient") == gradbus.size()).all()
            end = time.perf_counter()
            log.write(f"{end} {end - begin}\n")


def connect(address: str, said: bytes) -> socket.socket:
    """A connection that does not wait for anything."""
    host, port = address.split(":")
    one = socket.socket()
    one.setblocking(False)
    one.connect_ex((host, int(port)))
    with contextlib.suppress(OSError):
        one.send(said)
    return one


@contextlib.contextmanager
def connections(address: str, count: int, said: bytes = b""):
    """Many that end together."""
    held = [connect(address, said) for _ in range(count)]
    try:
        yield
    finally:
        for one in held:
            one.close()


@contextlib.contextmanager
def slow_loris(address: str, start: bytes):
    """A hundred connections that begin a request, send a byte of it each 50 ms, and come again when they are closed."""
    stop = threading.Event()

    def feed() -> None:
        held = [connect(address, start) for _ in range(100)]
        while not stop.wait(0.05):
            for i, one in enumerate(held):
                try:
                    one.send(b"a")
                except BlockingIOError:
                    continue
                except OSError:
                    one.close()
                    held[i] = connect(address, start)
        for one in held:
            one.close()

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextlib.contextmanager
def repeated(act: Callable[[], None], every_s: float = 0.5):
    """What somebody does again and again."""
    stop = threading.Event()

    def again() -> None:
        while not stop.wait(every_s):
            act()

    thread = threading.Thread(target=again)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def refused(command: list[str]):
    """A daemon that refuses to start, twice a second."""
    def start() -> None:
        done = subprocess.run(command, capture_output=True, check=False, timeout=30)
        assert done.returncode == 1, done.stderr

    return repeated(start)


@contextlib.contextmanager
def full_shared_memory():
    """Nothing fits into this machine's /dev/shm, which is one of this process alone (own_shared_memory)."""
    file = pathlib.Path("/dev/shm/full")
    with contextlib.suppress(OSError), file.open("wb") as out:
        while True:
            out.write(b"x" * 4096)
    yield
    file.unlink()


def own_shared_memory() -> None:
    """Starts this program again with a /dev/shm of 64 KiB."""
    if os.environ.get("DISTURBANCE_OWN_SHM") or os.geteuid() != 0:
        return
    mount = 'mount -t tmpfs -o size=64k none /dev/shm && exec "$@"'
    os.environ["DISTURBANCE_OWN_SHM"] = "1"
    os.execvp("unshare", ["unshare", "--mount", "sh", "-c", mount, "sh", sys.executable, *sys.argv])


def stale_sockets(rig):
    """An agent starts on the socket of one that was killed, and is killed, once a second."""
    def start() -> None:
        agent = rig.start_agent("other")
        agent.process.kill()
        agent.process.wait()
        rig.agents.remove(agent)

    return repeated(start, 1)


def disturbances(rigs, rig) -> dict:
    """{name: context}."""
    import test_hostile_scrapers as floods

    agent, page = rig.agents[0].ready["metrics"], rig.server.ready["metrics"]
    health = rig.agents[0].ready["health"]
    slow = b"GET /metrics HTTP/1.0\r\n\r\n"
    request = b"GET %s HTTP/1.1\r\nHost: x\r\nX-Slow: "
    token = rigs.make_token_file(rig.folder / "open")
    token.chmod(0o644)
    wrong = rig.folder / "wrong.toml"
    wrong.write_text("[agent]\nbindd = 1\n")
    start = [str(rigs.BIN / "gradbus-agent"), "--coordinator", rig.server.ready["address"], "--bind", "127.0.0.1:0"]
    other = ["--socket", str(rig.folder / "other.sock")]
    return {
        "slow-loris on an agent's metrics port": lambda: slow_loris(agent, request % b"/metrics"),
        "slow-loris on the web page": lambda: slow_loris(page, request % b"/state.json"),
        "slow-loris on an agent's health port": lambda: slow_loris(health, floods.SLOW_SETTINGS),
        "10,000 silent connections to an agent's metrics port": lambda: connections(agent, 10_000),
        "10,000 silent connections to the web page": lambda: connections(page, 10_000),
        "10,000 silent connections to an agent's health port": lambda: connections(health, 10_000),
        "1,000 scrapers that never read": lambda: connections(agent, 1_000, slow),
        "1,000 probes that watch and never read": lambda: connections(health, 1_000, floods.PREFACE + floods.WATCH),
        "an agent with an unknown key, twice a second": lambda: refused([*start, *other, "--config", str(wrong)]),
        "an agent with an open token, twice a second": lambda: refused([*start, *other, "--token-file", str(token)]),
        "a second agent on the node, twice a second": lambda: refused(
            [*start, "--socket", rig.agents[0].ready["socket"]]),
        "an agent that takes over a stale socket, once a second": lambda: stale_sockets(rig),
        **({"a full /dev/shm": full_shared_memory} if os.geteuid() == 0 else {}),
    }  # fmt: skip


def steps(file: pathlib.Path) -> list[tuple[float, float]]:
    """(end, length) of all whole lines."""
    return [tuple(map(float, line.split())) for line in file.read_text().splitlines()[:-1]]


def measure(file: pathlib.Path, hostile, rounds: int, seconds: float) -> dict:
    """Medians of the steps in windows with and without."""
    windows: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for _ in range(rounds):
        for on in (False, True):
            with hostile() if on else contextlib.nullcontext():
                time.sleep(0.3)
                begin = time.perf_counter()
                time.sleep(seconds)
                windows[on].append((begin, time.perf_counter()))
    found = {on: [length for end, length in steps(file) if any(b + length < end < e for b, e in spans)]
             for on, spans in windows.items()}  # fmt: skip
    medians = {on: statistics.median(lengths) for on, lengths in found.items()}
    return {"steps": len(found[True]), "without_ms": 1000 * medians[False], "with_ms": 1000 * medians[True],
            "ratio": medians[True] / medians[False]}  # fmt: skip


def main() -> None:
    """The command line above."""
    parser = argparse.ArgumentParser(description="Measures what hostile clients cost a job.")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--markdown", action="store_true", help="a table for docs/benchmarks/hostile-clients.md")
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        return rank(options.rank)
    own_shared_memory()
    import rig as rigs

    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    with rigs.cluster(2, *METRICS, *HEALTH, server_arguments=METRICS) as rig:
        files = [rig.folder / f"steps-{number}" for number in range(2)]
        ranks = [rig.start_rank(number, 2, program=[sys.executable, __file__, "--rank", str(file)],
                                env={"OMP_NUM_THREADS": "1"}) for number, file in enumerate(files)]  # fmt: skip
        rigs.wait_until(lambda: files[0].exists() and len(files[0].read_text()) > 1000, what="steps")
        for name, hostile in {"nothing": contextlib.nullcontext, **disturbances(rigs, rig)}.items():
            found = measure(files[0], hostile, options.rounds, options.seconds)
            assert all(one.process.poll() is None for one in ranks), "the job has ended: a sum was wrong"
            row = f"| {name} | {found['without_ms']:.2f} | {found['with_ms']:.2f} | {found['ratio']:.3f} |"
            print(row if options.markdown else json.dumps({"what": name, **found}), flush=True)


if __name__ == "__main__":
    main()

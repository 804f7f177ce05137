"""What a figure depends on: the machine, the versions, the day, and the rates that bound everything."""

from __future__ import annotations

import datetime
import json
import os
import pathlib
import platform
import re
import socket
import subprocess
import tempfile
import time

from bench import entrants, process
from bench.campaign import Clock
from bench.results import Entry

IPERF_SECONDS = 5
START_DEADLINE_S = 10


def first_line(*command: str) -> str:
    """What a program says about itself; empty when it is not there."""
    done = process.run(list(command), 30, dict(entrants.AS_ROOT))
    return done.output.strip().splitlines()[0] if done.output.strip() and not done.problem else ""


def processor() -> str:
    """As the kernel names it."""
    found = re.search(r"model name\s*:\s*(.+)", pathlib.Path("/proc/cpuinfo").read_text())
    return found.group(1) if found else platform.machine()


def cache_sizes() -> str:
    """Of the first core: L2 512K, L3 32M."""
    found = []
    for folder in sorted(pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, size = ((folder / name).read_text().strip() for name in ("level", "size"))
        if level != "1":
            found.append(f"L{level} {size}")
    return ", ".join(found)


def memory_gib() -> int:
    """Of the machine."""
    found = re.search(r"MemTotal:\s*(\d+)", pathlib.Path("/proc/meminfo").read_text())
    return round(int(found.group(1)) / (1 << 20)) if found else 0


def machine() -> Entry:
    """The machine of this run."""
    return {"processor": processor(), "cores": os.cpu_count(), "caches": cache_sizes(),
            "memory_gib": memory_gib(), "kernel": platform.release(),
            "load_at_start": round(os.getloadavg()[0], 2)}


def package_version(python: str, *names: str) -> str:
    """Versions of Python packages in an environment, "torch 2.15.0, horovod 0.28.1"."""
    code = ("import sys, importlib.metadata as m\n"
            "print(', '.join(f'{n} {m.version(n)}' for n in sys.argv[1:]))")
    return first_line(python, "-c", code, *names)


def versions(with_horovod: bool) -> Entry:
    """Name to version of everything measured."""
    mpich = re.search(r"[\d.]+$", first_line("mpichversion"))
    found = {"Open MPI": first_line("mpirun.openmpi", "--version").rsplit(" ", 1)[-1],
             "MPICH": mpich.group() if mpich else "",
             "Gloo": package_version(entrants.PYTHON, "torch"),
             "iperf3": first_line("iperf3", "--version").removeprefix("iperf ").split(" (")[0]}
    if with_horovod:
        found["Horovod"] = package_version("build/peers/horovod/bin/python", "horovod", "torch")
    return {name: version for name, version in found.items() if version}


def commit() -> str:
    """The commit measured, with a mark when the tree differs from it."""
    head = first_line("git", "rev-parse", "--short=12", "HEAD") or "unknown"
    changed = first_line("git", "status", "--porcelain", "--untracked-files=no")
    return head + (" with changes" if changed else "")


def now() -> str:
    """UTC, to the minute."""
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


def best_rates(first: Entry, second: Entry) -> Entry:
    """Of two measurements of the machine the higher rates and the shorter latencies."""
    if "problem" in second:
        return first or second
    best = {**first, **second}
    for name in first.keys() & second.keys():
        before, after = first[name], second[name]
        if name.endswith("_gbs"):
            best[name] = [max(pair) for pair in zip(before, after)]
        elif name.endswith("_ns") and before is not None and after is not None:
            best[name] = min(before, after)
    best.pop("problem", None)
    return best


def machine_rates() -> Entry:
    """What `gradbus bench machine` measures, or {"problem"}."""
    with tempfile.TemporaryDirectory(prefix="gradbus-bench-") as folder:
        path = pathlib.Path(folder, "machine.json")
        done = process.run([entrants.GRADBUS, "bench", "machine", "--json", str(path)], 60)
        if done.problem or not path.exists():
            return {"problem": done.problem or "it wrote no file"}
        try:
            return json.loads(path.read_text())
        except ValueError as error:
            return {"problem": f"its file is not JSON: {error}"}


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for_port(server: subprocess.Popen[str], port: int) -> None:
    """Returns when the server listens; raises RuntimeError when it does not in time. Looks in the
    kernel's table, because a connection would be taken for the client's."""
    listening = f":{port:04X} 00000000:0000 0A"
    until = time.monotonic() + START_DEADLINE_S
    while server.poll() is None and time.monotonic() < until:
        if listening in pathlib.Path("/proc/net/tcp").read_text():
            return
        time.sleep(0.05)
    raise RuntimeError(f"iperf3 does not listen on port {port}")


def iperf_bidir_gbs(clock: Clock) -> float:
    """GB/s in both directions together that `iperf3 --bidir` moves over loopback. Raises RuntimeError."""
    port = str(free_port())
    try:
        server = subprocess.Popen(["iperf3", "-s", "-1", "-p", port, "-B", "127.0.0.1"], text=True,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL, start_new_session=True)
    except OSError as error:
        raise RuntimeError(f"cannot start iperf3: {error.strerror}") from None
    with process.nothing_left_behind(server):
        wait_for_port(server, int(port))
        client = ["iperf3", "-c", "127.0.0.1", "-p", port, "--bidir", "-l", "1M", "-t", str(IPERF_SECONDS), "-J"]
        done = process.run(client, min(IPERF_SECONDS + 15, clock.left()))
    if done.problem:
        raise RuntimeError(done.problem)
    end = json.loads(done.output)["end"]
    received = (end["sum_received"], end["sum_received_bidir_reverse"])
    return sum(part["bits_per_second"] for part in received) / 8e9

"""How many instructions a payload byte costs over TCP and over RDMA, inside a machine that counts them:

    python3 tests/vm/machine.py --count-instructions --seconds 1800 -- \\
        env GRADBUS_BIN=$PWD/build/release/bin python3 tests/vm/instructions.py

Two agents on one cable, a rank each, all-reduces of 4 MB: a short job's instructions taken from a long
one's, over the bytes that both agents have sent meanwhile. Agents, by where they were; then the whole
machine, in which are the ranks, who fill and check their vectors, and the cards, which soft-RoCE makes of
the kernel: its share is in "soft interrupts", and in system time of whoever was interrupted or called it.
"""

from __future__ import annotations

import os
import pathlib

import rdma_checks as checks

SHORT, LONG = 5, 55  # steps
VECTOR_BYTES = 4_000_000
JOB_MAX_S = 1200  # by the machine's clock, which takes a second for a billion instructions
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
HEAD = ("transport", "agents: user", "agents: system", "machine: user", "machine: system", "machine: soft interrupts")


def agents_of(rig: checks.rigs.Rig) -> list[float]:
    """User and system seconds of both agents."""
    stats = [pathlib.Path(f"/proc/{agent.pid}/stat").read_text().rpartition(")")[2].split() for agent in rig.agents]
    return [sum(int(fields[place]) for fields in stats) * TICK_S for place in (11, 12)]


def machine() -> list[float]:
    """Its user, system and soft interrupt seconds."""
    user, nice, system, _idle, _wait, hard, soft = map(
        int, pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:8])
    return [(user + nice) * TICK_S, (system + hard) * TICK_S, soft * TICK_S]


def seconds_of(rig: checks.rigs.Rig, steps: int) -> list[float]:
    """Of one job: the columns of HEAD."""
    before = agents_of(rig) + machine()
    checks.assert_ok(checks.finish(rig.start_job(2, f"steps:grad:{VECTOR_BYTES // 4}:{steps}"), JOB_MAX_S))
    return [after - earlier for after, earlier in zip(agents_of(rig) + machine(), before)]


def main() -> None:
    """Prints a table."""
    print("| " + " | ".join(HEAD) + " |\n" + "| --- " * len(HEAD) + "|")
    for transport in ("tcp", "rdma"):
        with checks.two_nodes(transport, peer_timeout_ms=checks.LONG_MS) as rig:
            short, long = (seconds_of(rig, steps) for steps in (SHORT, LONG))
        sent = (LONG - SHORT) * 2 * VECTOR_BYTES  # of two ranks each sends one half twice
        print(f"| {transport} | " + " | ".join(f"{(b - a) * 1e9 / sent:.2f}" for a, b in zip(short, long)) + " |",
              flush=True)


if __name__ == "__main__":
    main()

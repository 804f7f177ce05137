"""The wall clock of a machine is set while daemons and jobs run: by NTP, by an operator, or after a suspend.

A library in front of libc shifts CLOCK_REALTIME for the daemons and ranks of this test alone. Leases, time limits and
waits are of the monotonic clock, so nothing may be lost, hang or come out wrong.
"""

import shutil
import struct
import subprocess

import pytest
import rig as rigs

SOURCE = rigs.REPOSITORY / "tests/system/clock_shift.c"
DAY_S = 86400
SHIFTS_S = (DAY_S, -DAY_S, 20 * 365 * DAY_S, 0, -3600, 7200, -40 * 365 * DAY_S, 0)


@pytest.fixture
def shift(tmp_path, monkeypatch):
    """A function that shifts the clock of what is started from here on, now and whenever it is called."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    library, seconds = tmp_path / "clock_shift.so", tmp_path / "seconds"
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", SOURCE, "-o", library, "-ldl"], check=True)
    seconds.write_bytes(bytes(8))
    monkeypatch.setenv("LD_PRELOAD", str(library))
    monkeypatch.setenv("CLOCK_SHIFT", str(seconds))

    def set_to(value: int) -> None:
        with seconds.open("r+b") as file:  # it is mapped
            file.write(struct.pack("q", value))

    return set_to


def wall_clock() -> int:
    return int(subprocess.run(["date", "+%s"], capture_output=True, check=True).stdout)


def test_nothing_is_lost(shift):
    """One job runs through all jumps; others start, add up exactly and end around each jump."""
    before = wall_clock()
    shift(DAY_S)
    assert wall_clock() - before >= DAY_S, "the clock of this test cannot be shifted"
    shift(0)
    with rigs.cluster(2) as rig:
        long = rig.start_job(2, "steps:x:1000:100000000", job="long")
        rig.wait_until_running("long")
        for number, seconds in enumerate(SHIFTS_S):
            ranks = rig.start_job(4, "churn:y:50000:0.5", "red:z:1000:i64:sum", job=f"job-{number}")
            shift(seconds)
            results = [rank.finish() for rank in ranks]
            assert [status for status, _ in results] == [0] * 4, (seconds, results)
        assert [rank.process.poll() for rank in long] == [None, None], [rank.finish() for rank in long]
        status = rig.status()
        assert len(status["agents"]) == 2, status
        for daemon in [*rig.agents, rig.server]:
            assert daemon.alive() and "LOST" not in daemon.text(), daemon.text()[-2000:]

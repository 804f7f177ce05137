"""An agent in a real control group: it knows its cores and its memory, and says so before the kernel ends anything."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import subprocess
import sys

import pytest
import rig as rigs

sys.path.insert(0, str(rigs.REPOSITORY / "tests/system/operation"))
from scrape import METRICS, scrape  # noqa: E402

FOLDER = pathlib.Path("/sys/fs/cgroup")
LIMIT = 256 << 20
CPUS = 1.5
# version 1: (controller, file, value); version 2 has one folder
FIRST = [("memory", "memory.limit_in_bytes", str(LIMIT)), ("cpu", "cpu.cfs_period_us", "100000"),
         ("cpu", "cpu.cfs_quota_us", str(int(CPUS * 100000)))]  # fmt: skip
SECOND = [("", "memory.max", str(LIMIT)), ("", "memory.swap.max", "0"), ("", "cpu.max", f"{int(CPUS * 100000)} 100000")]


ONE_CORE_FIRST = [("cpuset", "cpuset.mems", "0"), ("cpuset", "cpuset.cpus", "0")]
ONE_CORE_SECOND = [("", "cpuset.cpus", "0")]


class Group:
    """A control group with limits; `enter` are words that start a command in it."""

    def __init__(self, cpuset: bool = False) -> None:
        self.first = (FOLDER / "memory/memory.limit_in_bytes").exists()
        name = f"gradbus-test-{os.getpid()}"
        if cpuset:
            self.settings = ONE_CORE_FIRST if self.first else ONE_CORE_SECOND
        else:
            self.settings = FIRST if self.first else SECOND
        self.folders = sorted({FOLDER / controller / name for controller, _, _ in self.settings})
        files = " ".join(f"{folder}/cgroup.procs" for folder in self.folders)
        self.enter = ["sh", "-c", f'for f in {files}; do echo $$ >"$f"; done; exec "$@"', "sh"]

    def make(self) -> None:
        """Raises OSError where this machine does not let us."""
        for folder in self.folders:
            folder.mkdir()
        for controller, file, value in self.settings:
            if file != "memory.swap.max" or (self.folders[0] / file).exists():
                (FOLDER / controller / self.folders[0].name / file).write_text(value)

    def remove(self) -> None:
        for folder in self.folders:
            with contextlib.suppress(OSError):
                rigs.wait_until(lambda f=folder: not (f / "cgroup.procs").read_text(), what="an empty group")
                folder.rmdir()

    def killed(self) -> int:
        """How often the kernel has ended a process of the group for want of memory."""
        memory = next(folder for folder in self.folders if "memory" in str(folder) or not self.first)
        text = (memory / ("memory.oom_control" if self.first else "memory.events")).read_text()
        return int(re.search(r"^oom_kill (\d+)", text, re.MULTILINE)[1])


@pytest.fixture
def group(request):
    made = Group(cpuset=getattr(request, "param", "cpu.max") == "cpuset")
    try:
        made.make()
    except OSError as why:
        made.remove()
        pytest.skip(f"no control group can be made here: {why}")
    yield made
    made.remove()


@pytest.fixture
def rig(group):
    """Coordinator outside, one agent inside, which may take more than its group has."""
    with rigs.cluster(0) as running:
        running.within = group.enter
        running.start_agent("node-0", "--shm-bytes-max", str(1 << 30))
        running.within = []
        yield running


def test_defaults_come_from_the_group(group):
    done = subprocess.run([*group.enter, rigs.BIN / "gradbus-agent", "--print-config"], capture_output=True, text=True,
                          check=True, timeout=60)  # fmt: skip
    assert int(re.search(r"^shm_bytes_max = (\d+)", done.stdout, re.MULTILINE)[1]) == LIMIT // 2
    doctor = subprocess.run([*group.enter, rigs.BIN / "gradbus", "doctor"], capture_output=True, text=True, check=False,
                            timeout=60)  # fmt: skip
    assert "left of this container's 268 MB" in doctor.stdout, doctor.stdout
    assert "1 usable of" in doctor.stdout, doctor.stdout


def test_a_tensor_that_does_not_fit_is_refused_with_numbers(rig, group):
    """Two ranks with 160 MB each: the quota of 1 GiB allows it, the group of 256 MiB does not."""
    (agent,) = rig.status()["agents"]
    assert agent["cores"] == min(len(os.sched_getaffinity(0)), int(CPUS))
    for rank in rig.start_job(2, "reg:big:40000000:f32:sum", job="large"):
        status, output = rank.finish()
        found = re.search(r"GB-S203 CONTAINER_FULL.*asks for (\d+) MiB.* (\d+) MiB left of 256 MiB \((\S+)\)", output)
        assert status != 0 and found, output
        assert int(found[1]) in range(305, 320) and 100 < int(found[2]) < 256, output
        assert found[3].startswith(str(FOLDER)) and "limits.memory" in output, output
    for rank in rig.start_job(2, "red:small:1000000:i64:sum", job="small"):
        status, output = rank.finish()
        assert status == 0, output
    assert rig.agents[0].alive() and group.killed() == 0


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
@pytest.mark.parametrize("group", ["cpu.max", "cpuset"], indirect=True)
def test_an_agent_with_one_core_does_not_spin(group):
    """Its only rank needs that core. The other agent has cores to spare, and searches for work before it sleeps."""
    with rigs.cluster(0) as rig:
        rig.within = group.enter
        inside = rig.start_agent("inside", *METRICS)
        rig.within = []
        outside = rig.start_agent("outside", *METRICS)
        ranks = rig.start_job(2, "steps:x:1000:300", f"touch:{rig.folder}/done", f"await:{rig.folder}/end")
        rigs.wait_until((rig.folder / "done").exists, what="the rounds")
        rigs.wait_until(lambda: scrape(outside).value("gradbus_spins_total") > 0, what="an agent that spins")
        assert scrape(inside).value("gradbus_operations_total") > 0
        assert scrape(inside).value("gradbus_spins_total") == 0
        (rig.folder / "end").touch()
        assert [rank.finish()[0] for rank in ranks] == [0, 0]

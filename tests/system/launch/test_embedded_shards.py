"""`gradbus run --shards`: a shard that is killed ends no job that has a backup replica of what it held."""

import contextlib
import os
import pathlib
import signal

import pytest
import rig as rigs
from conftest import RANKS, launched

pytestmark = pytest.mark.timeout(240)
PYTHON = str(rigs.REPOSITORY / ".venv/bin/python")
LIBRARY = str(rigs.BIN.parent / "lib/libgradbus.so")


def train(folder, *words):
    """Three ranks, two agents and two shards."""
    command = [PYTHON, str(RANKS / "parameter_server/replicas.py"), LIBRARY, *words]
    return launched(folder, "-np", "3", "--agents", "2", "--shards", "2", "--", *command)


def pids_of(process, name):
    """The embedded daemons of that name that run."""
    found = []
    for child in pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if name.encode() in pathlib.Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0"):
                found.append(int(child))
    return found


def kill_while_training(process, shard):
    """SIGKILL to an embedded shard after some steps of rank 0; its process id."""
    for _ in range(8):
        assert any(line.startswith("[0] stepped") for line in process.stdout)
    (killed,) = pids_of(process, shard)
    os.kill(killed, signal.SIGKILL)
    return killed


@pytest.mark.parametrize("mode", ["ps:sync,replicas=2", "ps:async,lr=1"])
def test_a_killed_shard_is_told_and_started_again(tmp_path, mode):
    with train(tmp_path, "counted", mode, "200") as process:
        killed = kill_while_training(process, "shard-1")
        rigs.wait_until(lambda: any(pid != killed for pid in pids_of(process, "shard-1")), what="the shard again")
        output, errors = process.stdout.read(), (tmp_path / "errors").read_text()
        assert process.wait(rigs.DEADLINE_S) == 0, (output, errors)
        assert all(f"[{rank}] ok\n" in output for rank in range(3)), (output, errors)  # each sum was exact
        (told,) = errors.splitlines()
        words = ("embedded shard-1", f"pid {killed}", "signal 9", "replicas=2", "started again (9 more times)")
        assert all(word in told for word in words), told


def test_without_a_replica_the_job_ends_by_itself(tmp_path):
    with train(tmp_path, "forever", "ps:sync") as process:
        kill_while_training(process, "shard-0")
        output, status = process.stdout.read(), process.wait(rigs.DEADLINE_S)
        assert "GB-P103 SHARD_LOST" in output and "shard-0" in output, (status, output)
        assert "embedded shard-0" in (tmp_path / "errors").read_text()

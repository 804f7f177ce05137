"""Shards that keep what they hold on disk, and jobs that go on from it, on real daemons."""

import pathlib
import subprocess

import fork_server
import pytest
import rig as rigs
from conftest import RANKS, clean_environment, start_ranks

pytestmark = pytest.mark.timeout(240)
PYTHON = str(rigs.REPOSITORY / ".venv/bin/python")
PROGRAM = "parameter_server/shards.py"


def run_job(directory, mode, *words, shards=2, job="train", **variables):
    """One rank under `gradbus run`; (exit status, what it printed)."""
    command = [str(rigs.BIN / "gradbus"), "run", "-np", "1", "--shards", str(shards), "--job", job,
               "--snapshots", str(directory), "--no-prefix", "--", PYTHON, str(RANKS / PROGRAM),
               words[0], mode, *words[1:]]  # fmt: skip
    done = fork_server.run(command, env=clean_environment(**variables), timeout=120, check=False, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
    return done.returncode, done.stdout


def files(directory, suffix=".snapshot"):
    return sorted(path for path in pathlib.Path(directory).rglob("*") if path.suffix == suffix)


# Expect: three jobs of 2, 3 and 1 shards make the steps of one, whatever the optimizer remembers.
@pytest.mark.parametrize("name", ["sgd", "adam", "lamb"])
def test_a_job_goes_on_with_another_number_of_shards(tmp_path, name):
    status, output = run_job(tmp_path, "ps:async", "steps", name, "0", "4")
    assert status == 0, output
    for shards, first, last in ((3, "4", "8"), (1, "8", "10")):
        status, output = run_job(tmp_path, "ps:async,restore=1", "steps", name, first, last, shards=shards)
        assert status == 0, output
    assert [path.name for path in files(tmp_path / "train")].count("shard-2-of-3.snapshot") == 1


# Expect: with --snapshot-keep as many starts as that are on disk, the newest ones.
def test_snapshots_of_old_starts_are_removed(tmp_path):
    starts = []
    for first in (0, 1, 2, 3):
        mode = "ps:async,restore=1" if first else "ps:async"
        status, output = run_job(tmp_path, mode, "steps", "adam", str(first), str(first + 1),
                                 GRADBUS_AGENT_SNAPSHOT_KEEP="2")  # fmt: skip
        assert status == 0, output
        there = {path.parent for path in files(tmp_path / "train")}
        (new,) = there - set(starts)
        starts.append(new)
        assert there == set(starts[-2:]), (there, starts)


# Expect: a killed shard costs the steps since its last snapshot, and nothing else.
def test_a_killed_shards_job_goes_on_from_its_last_snapshot(tmp_path):
    keep = ("--snapshots", str(tmp_path), "--snapshot-every", "1")
    with rigs.cluster(1) as rig:
        for index in range(2):
            rig.start_shard(f"shard-{index}", *keep)
        (rank,) = start_ranks(rig, PYTHON, PROGRAM, 1, "forever", "ps:async,lr=1,replicas=1", GRADBUS_JOB="train")
        rigs.wait_until(lambda: len(files(tmp_path)) == 2, what="a snapshot of each shard")
        rig.shards[1].kill()
        _, output = rank.finish(60)
        made = output.count("stepped")
        assert "GB-P103 SHARD_LOST" in output and made > 0, output
        rig.start_shard("shard-1", *keep)
        (again,) = start_ranks(rig, PYTHON, PROGRAM, 1, "pulled", "ps:async,restore=1", GRADBUS_JOB="train")
        status, output = again.finish(60)
        assert status == 0, output
        low, high = map(int, output.split("pulled ")[1].split()[:2])
        assert -made - 1 <= low <= high < 0, (made, output)


@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_a_damaged_snapshot_is_named_and_the_older_one_still_there(tmp_path, damage):
    status, output = run_job(tmp_path, "ps:async", "steps", "adam", "0", "3")
    assert status == 0, output
    (victim, *_others) = files(tmp_path)
    good = victim.read_bytes()
    half = len(good) // 2
    victim.write_bytes(good[:half] if damage == "cut" else good[:half] + bytes([good[half] ^ 4]) + good[half + 1 :])
    status, output = run_job(tmp_path, "ps:async,restore=1", "steps", "adam", "3", "5")
    assert status != 0 and "GB-F110 BAD_SNAPSHOT" in output and str(victim) in output, output
    assert "is cut short" in output or "wrong checksum" in output
    victim.write_bytes(good)
    status, output = run_job(tmp_path, "ps:async,restore=1", "steps", "adam", "3", "5")
    assert status == 0, output


def test_mistakes_are_named(tmp_path):
    status, output = run_job(tmp_path, "ps:async,restore=1", "steps", "sgd", "0", "1")
    assert status != 0 and "GB-F111 NO_SNAPSHOT" in output and "no earlier run of job" in output, output
    status, output = run_job(tmp_path, "ps:async", "steps", "sgd", "0", "2")
    assert status == 0, output
    status, output = run_job(tmp_path, "ps:async,restore=1", "steps", "adam", "0", "1")
    assert status != 0 and "GB-F112 OTHER_SNAPSHOT" in output and "another optimizer" in output, output
    status, output = run_job(tmp_path, "ps:async", "steps", "sgd", "0", "1", shards=0)
    assert status == 2 and "add --shards N" in output, output
    status, output = run_job("/proc/nowhere", "ps:async", "steps", "sgd", "0", "1")
    assert status == 2 and "cannot be written to" in output, output


# Expect: all elements are there, but they would go to other parameters of the same tensor.
@pytest.mark.parametrize("changed", ["one:4x6 three:2x5 two:5x2 four:3x3", "one:4x6 two:2x5 three:2x5 four:3x3"])
def test_parameters_in_another_order_or_of_other_shapes_are_refused(tmp_path, changed):
    before = "one:4x6 two:5x2 three:2x5 four:3x3"
    status, output = run_job(tmp_path, "ps:async", "parameters", *before.split())
    assert status == 0, output
    status, output = run_job(tmp_path, "ps:async,restore=1", "parameters", *changed.split())
    assert status != 0 and "GB-F112 OTHER_SNAPSHOT" in output and "in another order" in output, output
    status, output = run_job(tmp_path, "ps:async,restore=1", "parameters", *before.split())
    assert status == 0, output


# Expect: a shard that was told of no directory says so to a job that wants one.
def test_a_shard_without_a_directory_refuses_to_restore():
    with rigs.cluster(1, shards=1) as rig:
        (rank,) = start_ranks(rig, PYTHON, PROGRAM, 1, "pulled", "ps:async,restore=1")
        status, output = rank.finish(60)
        assert status != 0 and "was started without --snapshots" in output, output

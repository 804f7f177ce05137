"""A coordinator that is killed and started anew: running jobs go on, register, and can be stopped."""

from __future__ import annotations

import contextlib
import json
import pathlib
import subprocess
import tempfile
import time

import pytest
import rig as rigs
from conftest import PYTHONS, assert_all_ok, start_ranks
from intruder import intruder, needs_root

pytestmark = pytest.mark.timeout(200)

NEWEST = str(PYTHONS["newest"])
TAKEN_BACK = "goes on under this coordinator"


@contextlib.contextmanager
def cluster(agents=2, shards=0, *agent_arguments):
    """A cluster whose coordinator has a port that another one can take over."""
    with tempfile.TemporaryDirectory(prefix="gradbus-test-") as folder:
        rig = rigs.Rig(pathlib.Path(folder))
        try:
            rig.server = rig.start_daemon("gradbus-server", "--listen", "127.0.0.1:0")
            for index in range(agents):
                rig.start_agent(f"node-{index}", *agent_arguments)
            for index in range(shards):
                rig.start_shard(f"shard-{index}")
            yield rig
        finally:
            rig.stop()


def kill_coordinator(rig):
    """As a machine that loses power does."""
    rig.server.kill()
    rig.server.process.wait()


def restart_coordinator(rig, *arguments):
    """On the same address, with the same token."""
    rig.server = rig.start_daemon("gradbus-server", "--listen", rig.server.ready["address"], *arguments)


def start_job(rig, *steps, job="job", **options):
    """Four ranks that have exchanged something, then wait for rig.folder/go before `steps`."""
    ranks = rig.start_job(4, "steps:w:1000:3", f"touch:{rig.folder}/begun-{job}", f"await:{rig.folder}/go", *steps,
                          job=job, **options)
    rigs.wait_until((rig.folder / f"begun-{job}").exists)
    for rank in range(4):
        rig.wait_for_rank(rank, job)
    return ranks


def go_on(rig):
    """The ranks take their next steps."""
    (rig.folder / "go").touch()


def all_well(ranks):
    """They end, and well."""
    for rank in ranks:
        status, out = rank.finish()
        assert status == 0, out


def gradbus(rig, *words):
    """A command that asks this rig's coordinator."""
    return subprocess.run([rigs.BIN / "gradbus", *words, "--coordinator", rig.server.ready["address"]], text=True,
                          capture_output=True, check=False, timeout=rigs.DEADLINE_S)


def test_a_job_registers_after_the_restart():
    """New tensors, and names of before with other shapes."""
    with cluster() as rig:
        ranks = start_job(rig, "steps:w:1000:3", "steps:new:500:5", "steps:w:2000:2")
        kill_coordinator(rig)
        restart_coordinator(rig)
        rigs.wait_until(lambda: TAKEN_BACK in rig.server.text(), what="the job")
        (job,) = rig.status()["jobs"]
        assert job["job"] == "job" and job["state"] == "running" and len(job["ranks"]) == 4, job
        go_on(rig)
        all_well(ranks)
        rigs.wait_until(lambda: 'job "job" done' in rig.server.text(), what="the end")
        assert "makes no sense" not in rig.server.text(), rig.server.text()


def test_what_is_registered_while_the_coordinator_is_away_waits():
    """It is there when all nodes have attached to the new one."""
    with cluster() as rig:
        ranks = start_job(rig, "steps:new:500:5", "steps:w:1000:3")
        kill_coordinator(rig)
        go_on(rig)
        time.sleep(3)
        assert all(rank.process.poll() is None for rank in ranks)
        restart_coordinator(rig)
        all_well(ranks)
        rigs.wait_until(lambda: 'job "job" done' in rig.server.text(), what="the end")


def test_it_is_killed_while_ranks_register():
    """Some nodes have had its last answers, others have not."""
    with cluster() as rig:
        names = [step for number in range(400) for step in (f"steps:t{number}:100:1",)]
        ranks = start_job(rig, *names)
        go_on(rig)
        for _ in range(3):
            time.sleep(0.3)
            kill_coordinator(rig)
            restart_coordinator(rig)
            rigs.wait_until(lambda: TAKEN_BACK in rig.server.text() or ranks[0].process.poll() is not None)
        all_well(ranks)


def test_stop_and_status_know_the_job():
    """gradbus stop works on it as before."""
    with cluster() as rig:
        ranks = start_job(rig)
        kill_coordinator(rig)
        restart_coordinator(rig)
        rigs.wait_until(lambda: TAKEN_BACK in rig.server.text(), what="the job")
        text = gradbus(rig, "status")
        assert "job job: running" in text.stdout and text.returncode == 0, text
        done = gradbus(rig, "stop", "job", "--reason", "enough")
        assert done.returncode == 0, done
        go_on(rig)
        for rank in ranks:
            status, out = rank.finish()
            assert status in (0, 3)
        assert "GB-J405" in rig.server.text()


def test_a_rank_that_dies_meanwhile_ends_the_job():
    """And the others hear who it was, also when they have noticed it long before the coordinator returns."""
    with cluster() as rig:
        ranks = start_job(rig, "steps:new:500:5")
        kill_coordinator(rig)
        ranks[3].process.kill()
        ranks[3].process.wait()
        go_on(rig)
        time.sleep(3)
        restart_coordinator(rig)
        for rank in ranks[:3]:
            status, out = rank.finish()
            assert status == 3 and "GB-P101" in out and "rank 3" in out, out


def test_a_node_that_does_not_come_back_ends_the_job():
    """Within a bounded time, with a clear error; the rank on the other node does not hang."""
    with cluster() as rig:
        ranks = start_job(rig, "steps:new:500:5")
        kill_coordinator(rig)
        rig.agents[1].kill(rigs.signal.SIGSTOP)
        restart_coordinator(rig)
        go_on(rig)
        try:
            for rank in ranks[:2]:
                status, out = rank.finish()
                assert status == 3 and "GB-J410 JOB_NOT_TAKEN_BACK" in out and "node-1" in out, out
        finally:
            rig.agents[1].kill(rigs.signal.SIGCONT)
        for rank in ranks[2:]:
            status, out = rank.finish()
            assert status == 3, out
        again = [rank.finish() for rank in rig.start_job(4, "steps:w:10:1", job="after")]
        assert [status for status, _ in again] == [0] * 4, again


@pytest.mark.parametrize("mode", ["ps:sync", "ps:async"])
def test_tensors_on_shards(mode):
    """Shards announce what they hold; each gradient of before and after counts once."""
    with cluster(2, 2) as rig:
        ranks = start_ranks(rig, NEWEST, "faults/coordinator_away.py", 4, "shards", mode, str(rig.folder))
        rigs.wait_until(lambda: all((rig.folder / f"begun-{rank}").exists() for rank in range(4)), what="the start")
        kill_coordinator(rig)
        restart_coordinator(rig)
        go_on(rig)
        assert_all_ok([rank.finish() for rank in ranks])
        rigs.wait_until(lambda: " done" in rig.server.text(), what="the end")
        assert TAKEN_BACK in rig.server.text() and "makes no sense" not in rig.server.text(), rig.server.text()


def test_a_shard_that_does_not_come_back():
    """What it held is lost: a clear error, within a bounded time."""
    with cluster(2, 2) as rig:
        words = ["shards", "ps:async,replicas=1", str(rig.folder)]
        ranks = start_ranks(rig, NEWEST, "faults/coordinator_away.py", 4, *words)
        rigs.wait_until(lambda: all((rig.folder / f"begun-{rank}").exists() for rank in range(4)), what="the start")
        kill_coordinator(rig)
        rig.shards[1].kill()
        rig.shards[1].process.wait()
        restart_coordinator(rig)
        go_on(rig)
        for rank in ranks:
            status, out = rank.finish()
            assert status != 0 and ("GB-P103" in out or "GB-P102" in out), out


@pytest.mark.parametrize("mode", ["ps:sync,replicas=2", "ps:async,replicas=2"])
def test_a_shard_with_a_backup_replica_does_not_come_back(mode):
    """The job waits for the coordinator, longer than for a report of one that is there, and fails over."""
    with cluster(2, 3) as rig:
        ranks = start_ranks(rig, NEWEST, "faults/coordinator_away.py", 4, "backups", mode, str(rig.folder))
        rigs.wait_until(lambda: all((rig.folder / f"begun-{rank}").exists() for rank in range(4)), what="the start")
        kill_coordinator(rig)
        rig.shards[1].kill()
        rig.shards[1].process.wait()
        go_on(rig)
        time.sleep(7)
        restart_coordinator(rig)
        assert_all_ok([rank.finish() for rank in ranks])
        assert "goes on without shard shard-1" in rig.server.text(), rig.server.text()


def test_elastic_waits_for_the_coordinator():
    """At init() and later: C501 is no failure."""
    with cluster() as rig:
        kill_coordinator(rig)
        rigs.wait_until(lambda: all("no connection" in agent.text() for agent in rig.agents), what="agents to notice")
        ranks = start_ranks(rig, NEWEST, "faults/coordinator_away.py", 4, "elastic", str(rig.folder))
        time.sleep(8)  # importing torch takes some of it
        assert all(rank.process.poll() is None for rank in ranks)
        restart_coordinator(rig)
        rigs.wait_until(lambda: all((rig.folder / f"begun-{rank}").exists() for rank in range(4)), what="the start")
        kill_coordinator(rig)
        go_on(rig)
        time.sleep(1)
        restart_coordinator(rig)
        assert_all_ok([rank.finish() for rank in ranks])


@needs_root
def test_an_intruder_cannot_announce_or_take_it():
    """Not without the token, and not as another user."""
    with cluster(2, 0, "--socket-mode", "0666") as rig, intruder() as other:
        rig.folder.chmod(0o755)
        ranks = start_job(rig, "steps:new:500:5", job="prey")
        kill_coordinator(rig)
        address = rig.server.ready["address"]
        restart_coordinator(rig)
        with other.agent(address, "--insecure-i-understand") as (_, own_socket, log):
            rigs.wait_until(lambda: "GB-C503" in log.read_text(), what="the refusal")
            status, output = other.rank(own_socket, 0, 1, "prey")
            assert status == 3 and "GB-C503" in output, output
            rigs.wait_until(lambda: TAKEN_BACK in rig.server.text(), what="the job")
            status, output = other.rank(rig.agents[0].ready["socket"], 1, 4, "prey")
            assert status == 3 and "GB-J408" in output, output
            status, output = other.run("gradbus", "stop", "prey", env={"GRADBUS_SOCKET": rig.agents[0].ready["socket"]})
            assert status == 1 and "GB-J408" in output, output
        go_on(rig)
        all_well(ranks)
        assert json.dumps(rig.status()["jobs"]).count("prey") >= 1

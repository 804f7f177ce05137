"""A coordinator that is asked too much, or that stands still: healthy agents keep their leases and jobs go on."""

from __future__ import annotations

import contextlib
import pathlib
import re
import signal
import subprocess
import tempfile
import time

import conftest
import pytest
import rig as rigs
from http2 import reset_calls

LEASE_MS = 4000  # more than a healthy agent ever misses on a busy machine
FAKE_NODES, FAKE_RANKS = 500, 128  # 64,000 ranks

pytestmark = pytest.mark.timeout(400)


@contextlib.contextmanager
def cluster():
    """Two agents and a coordinator with a short lease."""
    with tempfile.TemporaryDirectory(prefix="gradbus-test-") as folder:
        rig = rigs.Rig(pathlib.Path(folder))
        try:
            rig.server = rig.start_daemon("gradbus-server", "--listen", "127.0.0.1:0", "--lease-ms", str(LEASE_MS))
            for index in range(2):
                rig.start_agent(f"node-{index}")
            yield rig
        finally:
            rig.stop()


@contextlib.contextmanager
def job(rig):
    """A job over both agents that is to go on; afterwards it registers something new and ends well."""
    end = rig.folder / "end"
    ranks = rig.start_job(4, "steps:x:1000:3", f"touch:{rig.folder}/begun", f"await:{end}", "steps:x:1000:3",
                          "steps:new:1000:3")
    rigs.wait_until((rig.folder / "begun").exists)
    rig.wait_for_rank(3)
    yield ranks
    for rank in ranks:
        assert rank.process.poll() is None, rank.finish()
    end.touch()
    for rank in ranks:
        status, out = rank.finish(240)  # a slow machine has a flood to work off first
        assert status == 0, out
    lines = [line for daemon in [rig.server, *rig.agents] for line in daemon.text().splitlines() if "node-" in line]
    assert not [line for line in lines if "lease has ended" in line or "lost agent" in line]


def fake_nodes(rig, *words, **options):
    """The program fake_nodes, at this rig's coordinator."""
    return subprocess.Popen([rigs.BIN / "fake_nodes", rig.server.ready["address"], *map(str, words)], text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)


def test_hundreds_of_status_calls_about_very_many_ranks():
    """They share their answers; nobody's heartbeat waits for them."""
    with cluster() as rig, job(rig):
        nodes = fake_nodes(rig, "nodes", FAKE_NODES, FAKE_RANKS)
        try:
            assert nodes.stdout.readline() == "ready\n"
            output, _ = fake_nodes(rig, "status", 400).communicate(timeout=120)
            # On a slow machine the last calls may come later than their proofs are good for.
            assert int(re.search(r"answered (\d+) refused \d+\n$", output)[1]) > 100, output
        finally:
            nodes.kill()
            nodes.communicate()


def test_calls_that_are_reset_at_once():
    """As many as were tried: 259,200 streams that are opened and reset."""
    with cluster() as rig, job(rig):
        reset_calls(rig.server.ready["address"], 259_200)
        time.sleep(2 * LEASE_MS / 1000)


@pytest.mark.parametrize("seconds", [6, 17])
def test_a_coordinator_that_stands_still(seconds):
    """Longer than the lease, and longer than a connection's own patience used to be."""
    with cluster() as rig, job(rig):
        rig.server.kill(signal.SIGSTOP)
        time.sleep(seconds)
        rig.server.kill(signal.SIGCONT)
        rigs.wait_until(lambda: "was suspended for" in rig.server.text())
        time.sleep(2 * LEASE_MS / 1000)
        assert [agent["name"] for agent in rig.status()["agents"]] == ["node-0", "node-1"]


def test_an_agent_that_stands_still_beside_it_is_lost():
    """The coordinator's pause excuses nobody who is silent afterwards."""
    with cluster() as rig:
        ranks = rig.start_job(2, "steps:x:10:1", "loop:x:10:60")
        rig.wait_for_rank(1)
        rig.wait_for_rank(0)
        rig.server.kill(signal.SIGSTOP)
        rig.agents[1].kill(signal.SIGSTOP)
        time.sleep(2 * LEASE_MS / 1000)
        rig.server.kill(signal.SIGCONT)
        rigs.wait_until(lambda: "GB-P104" in rig.server.text(), what="the loss of node-1")
        rig.agents[1].kill(signal.SIGCONT)
        assert "GB-P104" in ranks[0].finish()[1]


def test_a_question_after_one_without_an_answer(python):
    """A coordinator stands still for longer than a rank waits: later questions are answered, each by its own answer."""
    with cluster() as rig:
        ranks = conftest.start_ranks(rig, python, "faults/asks_again.py", 2, str(rig.folder), GRADBUS_AGENT_TIMEOUT="2")
        rigs.wait_until(lambda: "started: 2 ranks on 2 agents" in rig.server.text(), timeout=conftest.RANK_DEADLINE_S)
        rig.server.kill(signal.SIGSTOP)
        (rig.folder / "asleep").touch()
        try:
            rigs.wait_until((rig.folder / "asked").exists)
        finally:
            rig.server.kill(signal.SIGCONT)
        (rig.folder / "awake").touch()
        conftest.assert_all_ok([rank.finish(conftest.RANK_DEADLINE_S) for rank in ranks])

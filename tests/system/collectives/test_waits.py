"""Waits: how long they may take, what is said of them, and what makes progress meanwhile."""

import json
import re
import signal
import time

import pytest
import rig as rigs
from conftest import PYTHONS, assert_all_ok, run_ranks

PYTHON = str(PYTHONS["newest"])


@pytest.fixture(scope="module")
def node():
    """One agent and its coordinator."""
    with rigs.cluster(1) as running:
        yield running


def test_the_default_limit_is_half_an_hour(node):
    assert_all_ok(run_ranks(node, PYTHON, "collectives/waits.py", 2, "default_limit"))


def test_a_late_rank_is_waited_for_and_reported_less_and_less(node):
    """Rank 0 sleeps while the others wait."""
    ranks = [node.start_rank(rank, 3, "red:x:10:i64:sum", *(["sleep:6.5"] if rank == 0 else []), "red:late:10:i64:sum",
                             job="late") for rank in range(3)]
    assert [rank.finish()[0] for rank in ranks] == [0, 0, 0]
    lines = [line for line in node.agents[0].text().splitlines() if 'job "late" waits' in line]
    assert 2 <= len(lines) <= 3 and all("rank 0" in line for line in lines), lines  # after 1, 2 and 5 s


def test_a_job_goes_on_with_a_rank_that_is_75_s_late(node):
    """As when rank 0 evaluates or saves. Each notice comes later after the one before."""
    ranks = [node.start_rank(rank, 2, "red:x:10:i64:sum", *(["sleep:75"] if rank == 0 else []), "red:late:10:i64:sum",
                             job="75 s late") for rank in range(2)]
    assert [rank.finish(timeout=150)[0] for rank in ranks] == [0, 0]
    lines = [line for line in node.agents[0].text().splitlines() if 'job "75 s late" waits' in line]
    after = [float(re.search(r"for (\d+(?:\.\d+)?) s", line)[1]) for line in lines]
    assert 4 <= len(after) <= 7 and after == sorted(after), lines  # stall_log_test.cc checks the times
    assert all("rank 0" in line for line in lines), lines


def test_a_stream_that_advances_is_no_deadlock(node):
    """Rank 0 is in a barrier, the others in a large all-reduce that advances, nearly as fast as without the barrier."""
    results = run_ranks(node, PYTHON, "collectives/waits.py", 8, "barrier_beside_stream", "4", "24")
    assert_all_ok(results)
    seconds = json.loads(results[0][1].splitlines()[0])
    assert seconds["mixed"] < 2.5 * seconds["plain"], seconds  # 0.6 to 1.2 times; a rank that sleeps too long: 5 to 14


@pytest.mark.parametrize("threads", [0, 1])
def test_process_sets_make_progress_for_each_other(node, threads):
    """Two sets, waited for in different orders; then by two threads."""
    began = time.monotonic()
    assert_all_ok(run_ranks(node, PYTHON, "collectives/waits.py", 3, "two_sets", str(threads), GRADBUS_OP_TIMEOUT="20"))
    assert time.monotonic() - began < 20


def test_a_frozen_agent(tmp_path):
    """Its own ranks notice that it does not read, those of the other agent that its lease has ended."""
    rig = rigs.Rig(tmp_path)
    try:
        rig.server = rig.start_daemon("gradbus-server", "--role=coordinator", "--listen", "127.0.0.1:0",
                                      "--lease-ms", "3000")
        for name in ("node-0", "node-1"):
            rig.start_agent(name)
        ranks = rig.start_job(4, "steps:x:10:5", f"touch:{tmp_path}/ready", "loop:x:10:60",
                              env={"GRADBUS_AGENT_TIMEOUT": "4"})
        rigs.wait_until(lambda: (tmp_path / "ready").exists(), what="the loop")
        rig.agents[1].kill(signal.SIGSTOP)
        outputs = [rank.finish() for rank in ranks]
        for status, output in outputs[:2]:
            assert status == 3 and "GB-P104" in output and "node-1" in output, output
        for status, output in outputs[2:]:
            assert status == 3 and "GB-A301" in output and "not read" in output, output
    finally:
        rig.stop()

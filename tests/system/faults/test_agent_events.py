"""Events that reach an agent together."""

import signal
import time

import pytest
import rig as rigs
from conftest import PYTHONS, assert_all_ok, start_ranks

pytestmark = pytest.mark.timeout(100)


# The agent stands still while one client leaves, another connects, and the first one's process ends:
# then it finds all three at once. The second client's socket gets the number that the first one had.
def test_a_client_is_not_taken_for_the_one_before(tmp_path):
    first = tmp_path / "first"
    second = tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    python = str(PYTHONS["newest"])
    with rigs.cluster(1) as rig:
        old = start_ranks(rig, python, "faults/leave_and_linger.py", 1, str(first))
        new = start_ranks(rig, python, "faults/leave_and_linger.py", 1, str(second))
        rigs.wait_until((second / "ready").exists, what="the second client's start")
        (first / "begin").touch()
        rigs.wait_until((first / "joined").exists, what="the first client")
        agent = rig.agents[0]
        agent.kill(signal.SIGSTOP)
        (first / "leave").touch()
        rigs.wait_until((first / "left").exists, what="the first client's leave")
        (second / "begin").touch()
        time.sleep(0.3)  # it connects and waits; the agent's lease lasts 1.5 s
        (first / "exit").touch()
        assert_all_ok([rank.finish() for rank in old])
        agent.kill(signal.SIGCONT)
        rigs.wait_until((second / "joined").exists, what="the second client")
        (second / "leave").touch()
        (second / "exit").touch()
        assert_all_ok([rank.finish() for rank in new])

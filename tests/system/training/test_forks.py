"""A forked child of a rank: it has its own copy of gradients, and calls of Gradbus are refused there."""

import pytest
import rig as rigs
from conftest import assert_all_ok, run_ranks

pytestmark = pytest.mark.timeout(240)
LIBRARY = str(rigs.BIN.parent / "lib/libgradbus.so")


@pytest.mark.parametrize("what", ["torch", "calls", "c"])
def test_a_child_does_not_reach_the_parents_job(two_agents, python, what):
    results = run_ranks(two_agents, python, "training/forked.py", 2, what, LIBRARY)
    assert_all_ok(results)

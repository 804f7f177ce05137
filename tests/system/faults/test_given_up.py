"""A rank that gives up a step, by a deadline, Ctrl-C or an exception, and goes on: replicas do not drift apart."""

import pytest
from conftest import assert_all_ok, run_ranks

pytestmark = pytest.mark.timeout(120)


def test_steps_that_a_rank_gives_up(two_agents, python, tmp_path):
    assert_all_ok(run_ranks(two_agents, python, "faults/given_up.py", 2, str(tmp_path)))

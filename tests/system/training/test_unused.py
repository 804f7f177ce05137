"""Parameters that no rank uses in a step, through real daemons."""

import pytest
from conftest import assert_all_ok, run_ranks

pytestmark = pytest.mark.timeout(240)


@pytest.mark.parametrize("size", [1, 3])
def test_what_no_rank_uses_does_not_move(two_agents, python, size):
    assert_all_ok(run_ranks(two_agents, python, "training/unused.py", size))

"""A second DistributedOptimizer over the same model, through real daemons."""

import pytest
from conftest import assert_all_ok, run_ranks

pytestmark = pytest.mark.timeout(240)


@pytest.mark.parametrize("size", [1, 3])
def test_the_newest_wrapper_takes_the_parameters_over(two_agents, python, size):
    assert_all_ok(run_ranks(two_agents, python, "training/takeover.py", size))

"""Sharded optimizers: each rank keeps the state of its share, and the results are those of one process."""

import pytest
from conftest import assert_all_ok, run_ranks

pytestmark = pytest.mark.timeout(300)
PROGRAM = "training/sharded.py"


@pytest.mark.parametrize("size", [2, 4])
def test_every_kind_of_optimizer_is_that_of_one_process(two_agents, python, size):
    assert_all_ok(run_ranks(two_agents, python, PROGRAM, size, "equal"))


def test_any_number_of_ranks_loads_the_state(two_agents, python, tmp_path):
    for size, what in ((2, "save"), (4, "load"), (4, "save"), (3, "load")):
        assert_all_ok(run_ranks(two_agents, python, PROGRAM, size, what, str(tmp_path / "state")))

"""Sharded optimizers: each rank keeps the state of its share, and the results are those of one process."""

import pytest
from conftest import PYTHONS, assert_all_ok, run_ranks

pytestmark = pytest.mark.timeout(300)
PROGRAM = "training/sharded.py"


@pytest.mark.parametrize("size", [2, 4])
def test_every_kind_of_optimizer_is_that_of_one_process(two_agents, python, size):
    assert_all_ok(run_ranks(two_agents, python, PROGRAM, size, "equal"))


def test_any_number_of_ranks_loads_the_state(two_agents, python, tmp_path):
    for size, what in ((2, "save"), (4, "load"), (4, "save"), (3, "load")):
        assert_all_ok(run_ranks(two_agents, python, PROGRAM, size, what, str(tmp_path / "state")))


def test_states_are_given_and_taken_as_with_one_process(two_agents, python):
    """Names for numbers, hooks, broadcasts, and a checkpoint that one rank alone has loaded."""
    assert_all_ok(run_ranks(two_agents, python, "training/habits/sharded_state.py", 2))


@pytest.mark.parametrize("size", [2, 4])
def test_edited_groups_own_optimizers_and_checkpoints(two_agents, size):
    """Also gradients that are exchanged between parameters, stepped on twice, or never zeroed."""
    words = "edited", "own_", "checkpoint", "two_steps_of_one_gradient", "flush_without_zero_grad"
    assert_all_ok(run_ranks(two_agents, str(PYTHONS["newest"]), "cases/sharded_cases.py", size, *words))

"""Parameters that change while they are trained, through real daemons: equal to one process, or one error."""

import pytest
import rig as rigs
from conftest import assert_all_ok, run_ranks

pytestmark = pytest.mark.timeout(240)


@pytest.mark.parametrize("size", [1, 3])
def test_changed_parameters_equal_one_process(two_agents, python, size):
    assert_all_ok(run_ranks(two_agents, python, "training/parameters.py", size))


def test_a_frozen_parameter_on_shards_is_refused(python):
    with rigs.cluster(1, shards=1) as rig:
        assert_all_ok(run_ranks(rig, python, "training/parameters.py", 2, "shards_case"))


def test_an_optimizer_that_some_ranks_have_shifts_no_others(two_agents, python):
    assert_all_ok(run_ranks(two_agents, python, "training/optimizer_numbers.py", 3))


@pytest.mark.parametrize("size", [1, 3])
def test_complex_parameters_equal_one_process(two_agents, python, size):
    assert_all_ok(run_ranks(two_agents, python, "training/complex_parameters.py", size))


@pytest.mark.parametrize("size", [1, 3])
def test_sequences_of_calls_equal_one_process(two_agents, python, size):
    assert_all_ok(run_ranks(two_agents, python, "training/sequences.py", size))

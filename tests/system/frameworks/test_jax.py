"""gradbus.jax with real JAX and optax, on 2 and 4 ranks of one and two agents."""

import conftest
import framework_runs
import pytest
import rig as rigs


@pytest.fixture(scope="module")
def one_agent():
    with rigs.cluster(1) as running:
        yield running


PROGRAM = "frameworks/jax_operations.py"


def test_operations_on_one_node(one_agent):
    conftest.assert_all_ok(conftest.run_ranks(one_agent, framework_runs.python(), PROGRAM, 2))


def test_operations_on_two_nodes(two_agents):
    conftest.assert_all_ok(conftest.run_ranks(two_agents, framework_runs.python(), PROGRAM, 4))


@pytest.mark.parametrize("program", ["forward", "programs"])
def test_programs(two_agents, program):
    conftest.assert_all_ok(conftest.run_ranks(two_agents, framework_runs.python(), f"frameworks/jax_{program}.py", 2))


def test_digits_equal_one_process(two_agents, tmp_path):
    framework_runs.check_digits(two_agents, "jax/digits.py", tmp_path)


def test_the_policy_of_the_job_compresses(two_agents, tmp_path):
    framework_runs.check_policy(two_agents, "jax/digits.py", tmp_path)

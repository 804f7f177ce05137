"""Collectives of every dtype, layout and Python's own numbers, compared with NumPy."""

import pytest
import rig as rigs
from conftest import assert_all_ok, run_ranks

pytestmark = pytest.mark.timeout(240)


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("mode", ["edges", "numbers", "nested"])
def test_odd_tensors(two_agents, python, mode, size):
    assert_all_ok(run_ranks(two_agents, python, "collectives/odd_tensors.py", size, mode))


@pytest.mark.parametrize(("size", "agents"), [(1, 1), (2, 1), (3, 1), (2, 2), (3, 2)])
def test_integers_of_every_width(python, size, agents):
    with rigs.cluster(agents) as rig:
        assert_all_ok(run_ranks(rig, python, "collectives/odd_tensors.py", size, "integers"))


def test_random_layouts_equal_numpy(two_agents, python):
    assert_all_ok(run_ranks(two_agents, python, "collectives/odd_tensors.py", 3, "fuzz", "200"))

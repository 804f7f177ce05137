"""torch's autograd through the collectives, compared with one process."""

import pytest
from conftest import assert_all_ok, run_ranks

pytestmark = pytest.mark.timeout(240)


@pytest.mark.parametrize("mode", [
    "every_collective", "to_the_root", "from_the_root", "groups", "all_to_all", "others", "handles", "in_place",
    "training",
])
def test_gradients(two_agents, python, mode):
    assert_all_ok(run_ranks(two_agents, python, "collectives/gradients.py", 3, mode))


def test_gradients_alone(two_agents, python):
    for mode in ("every_collective", "to_the_root", "from_the_root", "groups", "handles", "in_place"):
        assert_all_ok(run_ranks(two_agents, python, "collectives/gradients.py", 1, mode))

"""The average of f16 does not depend on where ranks are: it overflows where the mean does, not where a sum would."""

import pytest
import rig as rigs
from conftest import assert_all_ok, run_ranks

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module", params=[1, 2, 3])
def agents(request):
    """A cluster of one, two or three agents."""
    with rigs.cluster(request.param) as running:
        yield running


def test_as_numpy_in_float64(agents, python):
    count = len(agents.agents)
    assert_all_ok(run_ranks(agents, python, "collectives/half_average.py", max(3, count), str(count)))

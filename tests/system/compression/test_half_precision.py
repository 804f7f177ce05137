"""Gradients of float16 and bfloat16 are compressed, or summed, in float32."""

import re

import pytest
from conftest import run_ranks

pytestmark = pytest.mark.timeout(240)


def rounds_of(results):
    for status, output in results:
        assert status == 0, output
    return [re.search(r"rounds (\d+) differs (\d+)", output).groups() for _, output in results]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("case", ["reduce", "topk", "efsignsgd", "delayed"])
def test_the_result_is_that_of_float32_rounded_once(two_agents, python, case, dtype):
    found = rounds_of(run_ranks(two_agents, python, "compression/half_precision.py", 3, case, dtype))
    assert found == [("4", "0")] * 3


def test_in_their_own_dtype_sums_are_rounded_more_often(two_agents, python):
    """What reduce_dtype is for: else the test above would show nothing."""
    found = rounds_of(run_ranks(two_agents, python, "compression/half_precision.py", 3, "own", "bfloat16"))
    assert all(int(differs) > 0 for _, differs in found), found

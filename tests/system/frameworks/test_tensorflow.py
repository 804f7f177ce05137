"""gradbus.tensorflow with real TensorFlow, on 2 and 4 ranks of two agents."""

import conftest
import framework_runs
import pytest

PROGRAM = "frameworks/tf_operations.py"


@pytest.mark.parametrize("size", [2, 4])
def test_operations(two_agents, size):
    conftest.assert_all_ok(conftest.run_ranks(two_agents, framework_runs.python(), PROGRAM, size))


def test_digits_equal_one_process(two_agents, tmp_path):
    framework_runs.check_digits(two_agents, "tensorflow/digits.py", tmp_path)

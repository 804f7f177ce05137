"""gradbus.horovod.tensorflow and .keras with real TensorFlow and Keras, on ranks of two agents."""

import conftest
import framework_runs
import pytest

pytestmark = pytest.mark.timeout(200)


def test_tensorflow(two_agents):
    program = "frameworks/hvd/hvd_tensorflow.py"
    conftest.assert_all_ok(conftest.run_ranks(two_agents, framework_runs.python(), program, 2))


def test_tensorflow_habits(two_agents):
    program = "frameworks/hvd/hvd_tensorflow_habits.py"
    conftest.assert_all_ok(conftest.run_ranks(two_agents, framework_runs.python(), program, 2))


@pytest.mark.parametrize("keras", ["2", "3"])
def test_batch_norm(two_agents, keras):
    program = "frameworks/hvd/hvd_tensorflow_batch_norm.py"
    conftest.assert_all_ok(conftest.run_ranks(two_agents, framework_runs.python(), program, 2, keras))


def test_keras2(two_agents, tmp_path):
    program = "frameworks/hvd/hvd_keras2.py"
    conftest.assert_all_ok(conftest.run_ranks(two_agents, framework_runs.python(), program, 2, str(tmp_path)))


def test_keras(two_agents, tmp_path):
    program = "frameworks/hvd/hvd_keras.py"
    conftest.assert_all_ok(
        conftest.run_ranks(two_agents, framework_runs.python(), program, 2, str(tmp_path), KERAS_BACKEND="tensorflow")
    )

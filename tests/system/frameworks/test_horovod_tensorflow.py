"""gradbus.horovod.tensorflow and .keras with real TensorFlow and Keras, on ranks of two agents."""

import conftest
import framework_runs
import pytest

pytestmark = pytest.mark.timeout(200)


def test_tensorflow(two_agents):
    program = "frameworks/hvd_tensorflow.py"
    conftest.assert_all_ok(conftest.run_ranks(two_agents, framework_runs.python(), program, 2))


def test_keras(two_agents, tmp_path):
    program = "frameworks/hvd_keras.py"
    conftest.assert_all_ok(
        conftest.run_ranks(two_agents, framework_runs.python(), program, 2, str(tmp_path), KERAS_BACKEND="tensorflow")
    )


@pytest.mark.parametrize("module", ["gradbus.mxnet", "gradbus.horovod.mxnet"])
def test_mxnet_is_refused(run_program, module):
    program = f"import importlib\ntry:\n  importlib.import_module('{module}')\nexcept ImportError as e: print(e)"
    status, output = run_program([framework_runs.python(), "-c", program], env=conftest.clean_environment())
    assert status == 0 and output.count("\n") == 1, output
    assert "no front end for MXNet" in output and "numpy==1.23.5" in output and "gradbus.torch" in output

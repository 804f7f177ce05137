"""gradbus.horovod.tensorflow and .keras with real TensorFlow and Keras, on ranks of two agents."""

import itertools

import conftest
import framework_runs
import pytest
import rig as rigs

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


@pytest.mark.parametrize("keras", ["2", "3"])
@pytest.mark.parametrize("size", [1, 2])
def test_elastic_states(two_agents, size, keras):
    program = "frameworks/hvd/hvd_elastic_states.py"
    conftest.assert_all_ok(conftest.run_ranks(two_agents, framework_runs.python(), program, size, keras))


@pytest.mark.parametrize("what, keras", [
    *itertools.product(["fit", "tape", "function"], ["2", "tensorflow"]),
    ("fit", "jax"), ("fit", "torch"), ("session", "tensorflow"),
])  # fmt: skip
def test_elastic_training_survives_the_loss_of_an_agent(tmp_path, what, keras):
    """Kills an agent in the middle of an epoch. The program compares the weight with its formula."""
    python, variables = framework_runs.python(), {"GRADBUS_ELASTIC_TIMEOUT": "100"}
    variables["KERAS_BACKEND"] = "tensorflow" if keras == "2" else keras
    if keras == "torch":
        python, path = framework_runs.with_torch()
        variables["PYTHONPATH"] = path
    with rigs.cluster(2) as rig:
        program = "frameworks/hvd/hvd_elastic_keras.py"
        ranks = conftest.start_ranks(rig, python, program, 2, str(tmp_path), what, keras, **variables)
        rigs.wait_until((tmp_path / "reached").exists, timeout=60, what="the step before the loss")
        rig.agents[0].kill()
        rig.agents[0].process.wait(rigs.DEADLINE_S)
        rig.start_agent("node-0")
        (tmp_path / "go").touch()
        results = [rank.finish(100) for rank in ranks]
    conftest.assert_all_ok(results)
    assert all("joins again: GB-" in output for _, output in results), results

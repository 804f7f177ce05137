"""gradbus.keras with real Keras 3 on its backends, and with Keras 2, on ranks of two agents."""

import conftest
import framework_runs
import pytest

PROGRAM = "frameworks/keras_training.py"


def run(cluster, folder, backend: str, size: int, python: str, **variables: str) -> None:
    variables["KERAS_BACKEND"] = backend
    conftest.assert_all_ok(conftest.run_ranks(cluster, python, PROGRAM, size, str(folder), **variables))


@pytest.mark.parametrize("backend, size", [("tensorflow", 2), ("jax", 4)])
def test_training(two_agents, tmp_path, backend, size):
    run(two_agents, tmp_path, backend, size, framework_runs.python())


def test_keras2(two_agents, tmp_path):
    program = "frameworks/keras2_training.py"
    conftest.assert_all_ok(conftest.run_ranks(two_agents, framework_runs.python(), program, 2, str(tmp_path)))


# Keras of .venv-frameworks beside the PyTorch of .venv.
def test_training_on_torch(two_agents, tmp_path):
    python, path = framework_runs.with_torch()
    run(two_agents, tmp_path, "torch", 2, python, PYTHONPATH=path)


@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_digits_equal_one_process(two_agents, tmp_path, backend):
    variables = {"KERAS_BACKEND": backend}
    if backend == "torch":
        variables["interpreter"], variables["PYTHONPATH"] = framework_runs.with_torch()
    framework_runs.check_digits(two_agents, "keras/digits.py", tmp_path, **variables)

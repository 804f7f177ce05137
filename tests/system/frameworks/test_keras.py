"""gradbus.keras with real Keras 3 on its backends, and with Keras 2, on ranks of two agents."""

import os

import conftest
import framework_runs
import pytest
import rig as rigs

PROGRAM = "frameworks/keras_training.py"


SITE_PACKAGES = next((framework_runs.PYTHON.parents[1] / "lib").glob("python3*/site-packages"), None)


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
    framework_runs.python()
    path = f"{os.environ['PYTHONPATH']}:{SITE_PACKAGES}"
    run(two_agents, tmp_path, "torch", 2, f"{rigs.REPOSITORY}/.venv/bin/python3", PYTHONPATH=path)


@pytest.mark.parametrize("backend, size", [("tensorflow", 2), ("jax", 4)])
def test_digits_equal_one_process(two_agents, tmp_path, backend, size):
    framework_runs.check_digits(two_agents, "keras/digits.py", tmp_path, (size,), KERAS_BACKEND=backend)

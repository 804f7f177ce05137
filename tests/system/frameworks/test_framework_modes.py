"""JAX, Keras and MXNet in modes other than sync, on ranks of two agents. No script names the mode."""

import conftest
import framework_runs
import pytest
import rig as rigs

PROGRAM = "frameworks/local_modes.py"
MXNET = rigs.REPOSITORY / ".venv-mxnet/bin/python3"
MODES = ["delayed:k=2", "localsgd:H=4", "diloco:H=3,outer_momentum=0.5"]


def run(cluster, framework, mode, size=2, python=None, **variables):
    variables |= {"GRADBUS_MODE": mode, "TF_CPP_MIN_LOG_LEVEL": "3"}
    python = python or framework_runs.python()
    conftest.assert_all_ok(conftest.run_ranks(cluster, python, PROGRAM, size, framework, mode, **variables))


@pytest.mark.parametrize("mode", MODES)
def test_jax(two_agents, mode):
    run(two_agents, "jax", mode, 3)


STREAMING = "diloco:H=4,outer_lr=1,outer_momentum=0,fragments=2,overlap=1"


@pytest.mark.parametrize("mode", ["averaging:every=1", "gossip:wait=1", STREAMING])
def test_ranks_stay_together_on_jax(two_agents, mode):
    run(two_agents, "jax_together", mode, 4)


@pytest.mark.parametrize("backend, mode", [("tensorflow", MODES[0]), ("tensorflow", MODES[2]), ("jax", MODES[1])])
def test_fit_of_keras(two_agents, backend, mode):
    run(two_agents, "keras_fit", mode, KERAS_BACKEND=backend)


@pytest.mark.parametrize("mode", MODES[1:])
def test_keras_on_torch(two_agents, mode):
    python, path = framework_runs.with_torch()
    run(two_agents, "keras", mode, python=python, KERAS_BACKEND="torch", PYTHONPATH=path)


@pytest.mark.parametrize("mode", MODES)
def test_mxnet(two_agents, mode):
    if not MXNET.exists():
        pytest.skip(f"{MXNET} is missing: run scripts/setup.sh --frameworks")
    run(two_agents, "mxnet", mode, python=str(MXNET))


def test_what_cannot_work_is_refused(two_agents):
    run(two_agents, "refusals", "localsgd:H=4")

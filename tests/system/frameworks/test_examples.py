"""The examples of all frameworks under their launchers: equal to one process, with modes and codecs of `gradbus run`.

JAX, TensorFlow, Keras and MXNet train whole in their own files.
"""

import json

import conftest
import framework_runs
import numpy as np
import pytest
import rig as rigs

pytestmark = pytest.mark.timeout(300)
TORCH = ("horovod", "torch_distributed")
MXNET = rigs.REPOSITORY / ".venv-mxnet/bin/python3"
# At 512 hidden units a gradient is large enough for a codec. Two epochs are enough to compare.
SHORT = ("--hidden", "512", "--epochs", "2")
OPTIONS = {"horovod": "ps:sync", "torch_distributed": "", "jax": "ps:sync", "tensorflow": "ps:sync", "keras": "ps:sync",
           "mxnet": "ps:sync"}  # fmt: skip


def command_of(example, file, *words):
    python = str(conftest.PYTHONS["newest"]) if example in TORCH else framework_runs.python()
    if example == "mxnet":
        python = str(MXNET)
        if not MXNET.exists():
            pytest.skip(f"{MXNET} is missing: run scripts/setup.sh --frameworks")
    return [python, str(rigs.REPOSITORY / f"examples/{example}/digits.py"), "--save-params", str(file), *words]


def run(command, **variables):
    """The JSON line of rank 0."""
    environment = conftest.clean_environment(TF_CPP_MIN_LOG_LEVEL="3", **variables)
    status, output = framework_runs.finished(command, environment)
    assert status == 0, output
    return next(json.loads(line) for line in output.splitlines() if line.startswith("{"))


def command_of_horovod(framework, file):
    python = MXNET if framework == "mxnet" else framework_runs.PYTHON
    if not python.exists():
        pytest.skip(f"{python} is missing: run scripts/setup.sh --frameworks")
    return [str(python), str(rigs.REPOSITORY / f"examples/horovod/{framework}_digits.py"), "--save-params", str(file)]


def gradbus_run(size, *options):
    return [str(rigs.BIN / "gradbus"), "run", "-np", str(size), "--agents", "2", "--no-prefix", *options, "--"]


def difference(file, other):
    """The largest of all parameters, relative to the largest value of its array."""
    left, right = np.load(file), np.load(other)
    return max(np.abs(left[name] - right[name]).max() / np.abs(right[name]).max() for name in right.files)


@pytest.mark.parametrize("example", TORCH)
def test_ranks_equal_one_process(tmp_path, example):
    assert run(command_of(example, tmp_path / "1.npz"))["accuracy"] >= 0.96
    for size in (2, 4):
        file = tmp_path / f"{size}.npz"
        result = run([*gradbus_run(size), *command_of(example, file)])
        assert result["accuracy"] >= 0.96 and result["world_size"] == size and result["ranks_identical"]
        assert difference(file, tmp_path / "1.npz") <= 1e-5, size


@pytest.mark.parametrize(("framework", "backend"), [
    ("tensorflow", "tensorflow"), ("keras", "jax"), ("keras", "tensorflow"), ("mxnet", ""),
])  # fmt: skip
def test_scripts_for_horovod_equal_one_process(tmp_path, framework, backend):
    alone, together = (command_of_horovod(framework, tmp_path / f"{size}.npz") for size in (1, 2))
    assert run(alone, KERAS_BACKEND=backend)["accuracy"] >= 0.96
    result = run([*gradbus_run(2), *together], KERAS_BACKEND=backend)
    assert result["accuracy"] >= 0.96 and result["world_size"] == 2 and result["ranks_identical"]
    assert difference(tmp_path / "2.npz", tmp_path / "1.npz") <= 1e-5


def on_agents(rig, name, words, size, file, *options):
    """mpi4py's example, started by mpirun on the nodes of two agents."""
    command = [*words]
    for number, agent in enumerate(rig.agents):
        path = agent.ready["socket"]
        there = ["-x", f"GRADBUS_SOCKET={path}"] if name == "openmpi" else ["-env", "GRADBUS_SOCKET", path]
        command += [":"] * number + ["-n", str(size // 2), *there, *command_of("mpi4py", file, *options)]
    return command


@pytest.mark.parametrize("name", framework_runs.MPIS)
def test_mpi4py_under_mpirun(two_agents, tmp_path, name):
    words, variables = framework_runs.mpirun(name, tmp_path)
    assert run(command_of("mpi4py", tmp_path / "1.npz"), **variables)["accuracy"] >= 0.96
    for size in (2, 4):
        file = tmp_path / f"{size}.npz"
        command = on_agents(two_agents, name, words, size, file)
        result = run(command, **variables)
        assert result["accuracy"] >= 0.96 and result["world_size"] == size and result["ranks_identical"]
        assert difference(file, tmp_path / "1.npz") <= 1e-5, size


@pytest.mark.parametrize("example", OPTIONS)
def test_modes_and_codecs_of_the_launcher(tmp_path, example):
    """The script does not change. With a codec, results differ a little; with a mode for sums, they do not."""
    one, summed, rounded = (tmp_path / f"{name}.npz" for name in ("one", "summed", "rounded"))
    backend = {"KERAS_BACKEND": "jax"} if example == "keras" else {}
    alone = run(command_of(example, one, *SHORT), **backend)
    mode = ["--shards", "1", "--mode", OPTIONS[example]] if OPTIONS[example] else []
    run([*gradbus_run(2, *mode), *command_of(example, summed, *SHORT)], **backend)
    assert difference(summed, one) <= 1e-5
    result = run([*gradbus_run(2, "--compression", "bf16"), *command_of(example, rounded, *SHORT)], **backend)
    assert 1e-5 < difference(rounded, one) < 0.1 and abs(result["accuracy"] - alone["accuracy"]) < 0.02


def test_modes_and_codecs_of_ranks_of_mpirun(two_agents, tmp_path):
    """By variables: `gradbus run` is not their launcher."""
    one, delayed, rounded = (tmp_path / f"{name}.npz" for name in ("one", "delayed", "rounded"))
    words, variables = framework_runs.mpirun("mpich", tmp_path)
    alone = run(command_of("mpi4py", one, *SHORT), **variables)
    for file, option in ((delayed, {"GRADBUS_MODE": "delayed:k=1"}), (rounded, {"GRADBUS_COMPRESSION": "bf16"})):
        result = run(on_agents(two_agents, "mpich", words, 2, file, *SHORT), **option, **variables)
        assert result["ranks_identical"] and difference(file, one) > 1e-5, option
    assert difference(rounded, one) < 0.1 and abs(result["accuracy"] - alone["accuracy"]) < 0.02


@pytest.mark.parametrize("example", ["jax", "keras", "mxnet"])
def test_shards_step_for_frameworks(tmp_path, example):
    """What a framework does not tell is in the mode."""
    backend = {"KERAS_BACKEND": "jax"} if example == "keras" else {}
    words = ["--shards", "1", "--mode", "ps:ssp,max_staleness=2,optimizer=sgd,momentum=0.9,lr=0.05"]
    result = run([*gradbus_run(2, *words), *command_of(example, tmp_path / "2.npz", "--lr", "0.05")], **backend)
    assert result["accuracy"] >= 0.95 and result["ranks_identical"]

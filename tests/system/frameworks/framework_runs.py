"""What the tests of frameworks other than PyTorch share: their Python, and the digits examples."""

from __future__ import annotations

import itertools
import json
import os
import pathlib
import shutil

import conftest
import fork_server
import numpy as np
import pytest
import rig as rigs

# "python3": each rank is started anew, not forked from a server that has imported PyTorch.
PYTHON = rigs.REPOSITORY / ".venv-frameworks/bin/python3"
MPIS = {"openmpi": ["--allow-run-as-root", "--oversubscribe"], "mpich": []}  # and first words of its mpirun
_MPICH = "/usr/lib/x86_64-linux-gnu/libmpich.so.12"
_jobs = itertools.count()


def python() -> str:
    """A Python with gradbus, JAX, TensorFlow, Keras and mpi4py."""
    if not PYTHON.exists():
        pytest.skip(f"{PYTHON} is missing: run scripts/setup.sh --frameworks")
    return str(PYTHON)


def with_torch() -> tuple[str, str]:
    """(the Python of PyTorch, its PYTHONPATH with the Keras of python())."""
    folder = next((pathlib.Path(python()).parents[1] / "lib").glob("python3*/site-packages"))
    return f"{rigs.REPOSITORY}/.venv/bin/python3", f"{os.environ['PYTHONPATH']}:{folder}"


def mpirun(name: str, folder: pathlib.Path) -> tuple[list[str], dict[str, str]]:
    """The first words of a command that starts mpi4py's ranks by this MPI, and its variables."""
    found = shutil.which(f"mpirun.{name}")
    if found is None:
        pytest.skip(f"mpirun.{name} is missing: run scripts/setup.sh --frameworks")
    variables = {"OMPI_MCA_btl_vader_single_copy_mechanism": "none"}
    if name == "mpich":  # docs/how-to/use-mpi4py.md says the same
        (folder / "libmpi.so.12").symlink_to(_MPICH)
        variables = {"MPI4PY_MPIABI": "mpich", "LD_LIBRARY_PATH": str(folder)}
    return [found, *MPIS[name]], variables


def finished(command: list[str], environment: dict[str, str]) -> tuple[int, str]:
    """(exit status, stdout and what went wrong). Examples run from any folder."""
    done = fork_server.run(
        command, env=environment, timeout=conftest.RANK_DEADLINE_S, text=True, capture_output=True, check=False,
        cwd="/")  # fmt: skip
    return done.returncode, done.stdout + (done.stderr if done.returncode else "")


def train_digits(
    cluster, example: str, size: int, file: pathlib.Path, *options: str, interpreter: str = "", **variables: str
) -> dict:
    """Trains on ranks of a cluster, or in one process without one. What rank 0 printed, and its parameters."""
    program = str(rigs.REPOSITORY / "examples" / example)
    command = [interpreter or python(), program, "--save-params", str(file), *options]
    environment = {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3", **variables}
    job = f"{example.replace('/', '-')}-{size}-{next(_jobs)}"
    ranks = cluster.start_job(size, program=command, job=job, env=environment, cwd=file.parent)
    results = [rank.finish(conftest.RANK_DEADLINE_S) for rank in ranks]
    assert [status for status, _ in results] == [0] * size, results
    result = json.loads(results[0][1].strip().splitlines()[-1])
    assert result["ranks_identical"] and result["world_size"] == size
    return {**result, "parameters": dict(np.load(file))}


def check_policy(cluster, example: str, folder: pathlib.Path, **variables: str) -> None:
    """The compression of the job's policy reaches the gradients without a change of the script.

    Gradients below 16,384 elements stay dense, so the hidden layer is larger here.
    """
    options = ("--hidden", "512", "--epochs", "3")
    dense = train_digits(cluster, example, 2, folder / "dense.npz", *options, **variables)
    rounded = train_digits(
        cluster, example, 2, folder / "rounded.npz", *options, GRADBUS_COMPRESSION="bf16", **variables)
    changed = {
        name for name, array in dense["parameters"].items() if not np.array_equal(array, rounded["parameters"][name])
    }
    assert changed
    assert abs(rounded["accuracy"] - dense["accuracy"]) <= 0.02


def check_digits(cluster, example: str, folder: pathlib.Path, sizes=(2, 4), **variables: str) -> None:
    """Ranks on the agents reach 96 %, with the parameters of one process."""
    alone = train_digits(cluster, example, 1, folder / "alone.npz", **variables)
    assert alone["accuracy"] >= 0.96
    for size in sizes:
        together = train_digits(cluster, example, size, folder / f"{size}.npz", **variables)
        assert together["accuracy"] >= 0.96
        for name, array in alone["parameters"].items():
            difference = np.abs(together["parameters"][name] - array).max() / np.abs(array).max()
            assert difference <= 1e-5, (name, size, difference)

"""gradbus.init(comm=...) with mpi4py under a real mpirun (Open MPI)."""

import pathlib
import shutil
import subprocess

import conftest
import framework_runs
import pytest
import rig as rigs

PROGRAM = pathlib.Path(__file__).parents[1] / "ranks/frameworks/mpi_ranks.py"


@pytest.mark.parametrize("size", [2, 4])
def test_both_libraries_in_one_script(size):
    mpirun = shutil.which("mpirun")
    if mpirun is None:
        pytest.skip("mpirun is missing: run scripts/setup.sh --frameworks")
    python = framework_runs.python()
    with rigs.cluster(1) as rig:
        command = [
            mpirun, "--allow-run-as-root", "--oversubscribe", "--mca", "btl_vader_single_copy_mechanism", "none", "-np",
            str(size), python, str(PROGRAM), rig.agents[0].ready["socket"],
        ]  # fmt: skip
        done = subprocess.run(command, env=conftest.clean_environment(), text=True, capture_output=True, timeout=100,
                              check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(line for line in done.stdout.splitlines() if line.endswith(" ok")) == [
        f"rank {rank} ok" for rank in range(size)
    ]

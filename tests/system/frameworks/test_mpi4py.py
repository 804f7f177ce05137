"""gradbus.init(comm=...) and Horovod's with mpi4py under a real mpirun (Open MPI and MPICH)."""

import pathlib
import subprocess

import conftest
import framework_runs
import pytest
import rig as rigs

PROGRAM = pathlib.Path(__file__).parents[1] / "ranks/frameworks/mpi_ranks.py"
SIZE = 4


@pytest.mark.parametrize("name", framework_runs.MPIS)
def test_both_libraries_in_one_script(name, tmp_path):
    words, variables = framework_runs.mpirun(name, tmp_path)
    with rigs.cluster(1) as rig:
        command = [*words, "-n", str(SIZE), framework_runs.python(), str(PROGRAM), rig.agents[0].ready["socket"]]
        done = subprocess.run(command, env=conftest.clean_environment(**variables), text=True, capture_output=True,
                              timeout=100, check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(line for line in done.stdout.splitlines() if line.endswith(" ok")) == [
        f"rank {rank} ok" for rank in range(SIZE)
    ]

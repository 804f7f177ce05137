"""torchrun and the mpirun of Open MPI and of MPICH start the ranks of one job on two nodes.

examples/digits is the program, and it knows no launcher. Each node has an agent; GRADBUS_SOCKET names it, because
both nodes are on this machine.
"""

import json
import shutil
import socket
import subprocess
import threading

import conftest
import numpy as np
import pytest
import rig as rigs

pytestmark = pytest.mark.timeout(300)
PYTHON = str(conftest.PYTHONS["newest"])
PROGRAM = str(rigs.REPOSITORY / "examples/digits/train.py")
TORCHRUN = [PYTHON, "-m", "torch.distributed.run"]
MPIRUNS = {
    "openmpi": ["--allow-run-as-root", "--oversubscribe"],
    "mpich": [],
}


def digits(file):
    return [PROGRAM, "--epochs", "2", "--save-params", str(file)]


def run_all(commands, **variables):
    """Starts them together; their output. A launcher that fails shows what it wrote."""
    started = [
        subprocess.Popen(command, env=conftest.clean_environment(**variables, **own), text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for command, own in commands
    ]  # fmt: skip
    ended = [None] * len(started)

    def finish(index):
        ended[index] = (*started[index].communicate(timeout=conftest.RANK_DEADLINE_S), started[index].returncode)

    threads = [threading.Thread(target=finish, args=(index,)) for index in range(len(started))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(result and result[2] == 0 for result in ended), ended
    return [result[0] for result in ended]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The parameters of one process."""
    file = tmp_path_factory.mktemp("alone") / "one.npz"
    run_all([([PYTHON, *digits(file)], {})])
    return dict(np.load(file))


def check_like_alone(outputs, file, alone, size):
    (result,) = [json.loads(line) for output in outputs for line in output.splitlines() if line.startswith("{")]
    assert result["world_size"] == size and result["ranks_identical"]
    for name, array in np.load(file).items():
        assert np.abs(array - alone[name]).max() <= 1e-5 * np.abs(alone[name]).max(), name


def places(cluster, launcher):
    """(ranks, agents) of each job that this launcher has named."""
    jobs = [job for job in cluster.status()["jobs"] if job["job"].startswith(f"{launcher}-")]
    return [(job["world_size"], len({rank["agent"] for rank in job["ranks"]})) for job in jobs]


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def torchrun(ranks, *options):
    return [*TORCHRUN, "--nproc-per-node", str(ranks), "--rdzv-backend", "c10d", "--rdzv-id", "digits", *options]


def test_torchrun_on_two_nodes(two_agents, alone, tmp_path):
    place = ["--nnodes", "2", "--rdzv-endpoint", f"127.0.0.1:{free_port()}"]
    nodes = [
        ([*torchrun(2, *place), *digits(tmp_path / "two.npz")], {"GRADBUS_SOCKET": agent.ready["socket"]})
        for agent in two_agents.agents
    ]
    check_like_alone(run_all(nodes), tmp_path / "two.npz", alone, 4)
    assert places(two_agents, "torchrun") == [(4, 2)]


def test_torchrun_starts_ranks_again(two_agents):
    """A rank fails once. torchrun then starts all ranks as a new job, whose name differs."""
    program = str(conftest.RANKS / "launch/fails_once.py")
    command = [*torchrun(2, "--rdzv-endpoint", "127.0.0.1:0", "--max-restarts", "1"), program]
    (output,) = run_all([(command, {"GRADBUS_SOCKET": two_agents.agents[0].ready["socket"]})])
    assert sorted(output.split()) == ["sum=3@0", "sum=3@0", "sum=3@1", "sum=3@1"], output


@pytest.mark.parametrize("place", ["before", "after"])
def test_torchrun_starts_ranks_on_two_nodes_again(two_agents, tmp_path, place):
    """A rank fails once, before init() or after. Its node alone counts that, and still both join one new job."""
    program = str(conftest.RANKS / "launch/fails_on_one_node.py")
    options = ["--nnodes", "2", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--max-restarts", "1"]
    command = [*torchrun(1, *options), program, str(tmp_path), place]
    outputs = run_all([(command, {"GRADBUS_SOCKET": agent.ready["socket"]}) for agent in two_agents.agents])
    assert (tmp_path / "failed").exists()
    assert outputs == ["sum=3\n"] * 2


@pytest.mark.parametrize("place", ["before", "after"])
def test_torchrun_starts_ranks_in_c_on_two_nodes_again(two_agents, tmp_path, place):
    """Nodes count the attempts differently, and the library's name serves all of them."""
    program = str(conftest.RANKS / "launch/c_fails_on_one_node.py")
    options = ["--nnodes", "2", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--max-restarts", "1"]
    command = [*torchrun(1, *options), program, str(tmp_path), place, str(rigs.BIN / "scripted_rank")]
    outputs = run_all([(command, {"GRADBUS_SOCKET": agent.ready["socket"]}) for agent in two_agents.agents])
    assert (tmp_path / "failed").exists()
    assert all(output.endswith("ok red:x:10:i64:sum\nok barrier\n") for output in outputs), outputs


@pytest.mark.parametrize("name", MPIRUNS)
def test_mpirun_on_two_nodes(two_agents, alone, tmp_path, name):
    mpirun = shutil.which(f"mpirun.{name}")
    if mpirun is None:
        pytest.skip(f"mpirun.{name} is missing: run scripts/setup.sh --frameworks")
    command = [mpirun, *MPIRUNS[name]]
    for number, agent in enumerate(two_agents.agents):
        path = agent.ready["socket"]
        there = ["-x", f"GRADBUS_SOCKET={path}"] if name == "openmpi" else ["-env", "GRADBUS_SOCKET", path]
        command += [":"] * number + ["-n", "1", *there, PYTHON, *digits(tmp_path / "mpi.npz")]
    check_like_alone(run_all([(command, {})]), tmp_path / "mpi.npz", alone, 2)
    assert places(two_agents, {"openmpi": "openmpi", "mpich": "pmi"}[name]) == [(2, 2)]

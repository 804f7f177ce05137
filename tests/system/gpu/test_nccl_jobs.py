"""NCCL sums gradients in GPU memory between nodes.

Agents and their NCCL processes load test doubles of the CUDA plug-in and of libnccl, whose ranks really sum:
cuda_double.cc and nccl_process_double.cc in tests/unit/gpu. Ranks use a test double of a device. A variable
sets --nccl of the coordinator.
"""

import contextlib
import os
import pathlib
import re
import signal

import pytest
import rig as rigs
from conftest import RANKS, assert_all_ok, run_ranks, start_ranks

pytest.importorskip("torch")
pytestmark = pytest.mark.timeout(240)
PYTHON = str(rigs.REPOSITORY / ".venv/bin/python")
LIBRARIES = rigs.BIN.parent / "lib"
WANTED = {"GRADBUS_DEVICE_MEMORY": "1", "GRADBUS_EXPECT": "shared"}
TENSORS = 7  # of nccl_orders.py
BY_NCCL = "gradients on GPUs are summed between nodes by NCCL"
BY_HOST = "gradients go through memory of the host, not by NCCL"


@contextlib.contextmanager
def nodes(agents, wrong="", timeout_ms=60_000, libraries=(), server="1"):
    """`wrong`: what the double of libnccl does; `libraries`: another libnccl of the agents by their numbers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADBUS_SERVER_NCCL", server)
        patch.setenv("GRADBUS_CUDA_PLUGIN", str(LIBRARIES / "libcuda_double.so"))
        patch.setenv("GRADBUS_CUDA_DOUBLE", "streams")
        patch.setenv("GRADBUS_NCCL", str(LIBRARIES / "libnccl_double.so"))
        patch.setenv("GRADBUS_NCCL_DOUBLE", wrong)
        patch.setenv("GRADBUS_AGENT_NCCL_TIMEOUT_MS", str(timeout_ms))
        with rigs.cluster(0) as running:
            for index in range(agents):
                patch.setenv("GRADBUS_NCCL", str(dict(libraries).get(index, LIBRARIES / "libnccl_double.so")))
                running.start_agent(f"node-{index}")
            yield running


@pytest.fixture(scope="module")
def three_nodes():
    with nodes(3) as running:
        yield running


def orders(rig, size, *words, **variables):
    return run_ranks(rig, PYTHON, "gpu/nccl_orders.py", size, "double", *words, **{**WANTED, **variables})


def nccl_processes(agent):
    """Children of this agent."""
    found = []
    for status in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            name, rest = re.fullmatch(r"\d+ \((.*)\) (.*)", status.read_text().strip()).groups()
            state, parent = rest.split()[:2]
            if name == "gradbus-nccl" and int(parent) == agent.pid and state != "Z":
                found.append(int(status.parent.name))
    return found


def assert_next_job_goes(rig, line):
    """It works; and every agent's log has this line of it."""
    before = [agent.text().count(line) for agent in rig.agents]
    assert_all_ok(orders(rig, len(rig.agents), "2"))
    assert [agent.text().count(line) for agent in rig.agents] == [count + 1 for count in before]


# Expect: the sums, though no two ranks post in one order; no byte of them went over the transports.
@pytest.mark.parametrize("size", [3, 6])
def test_tensors_that_are_ready_in_other_orders_on_each_node(three_nodes, size):
    assert_all_ok(orders(three_nodes, size, "5"))
    job = three_nodes.newest_job()
    assert job["nccl_tensors"] == TENSORS and job["no_nccl"] == "" and job["sent_bytes"] == 0, job
    for agent in three_nodes.agents:
        assert BY_NCCL in agent.text() and BY_HOST not in agent.text(), agent.text()
        rigs.wait_until(lambda agent=agent: not nccl_processes(agent), what="NCCL processes to end")


@pytest.mark.parametrize("program", [["gpu/staged.py", "compare", "double", "sync"], ["gpu/slow_streams.py"]])
def test_other_programs_get_the_bits_of_host_memory(three_nodes, program):
    """Of two nodes: of three the order of a sum is NCCL's own."""
    ranks = start_on(three_nodes, [0, 0, 2, 2], program)
    assert_all_ok([rank.finish() for rank in ranks])
    assert three_nodes.newest_job()["nccl_tensors"] > 0


def start_on(rig, agents, program, **variables):
    command = [PYTHON, str(RANKS / program[0]), *program[1:]]
    job = f"on-{next(numbers)}"
    return [
        rig.start_rank(rank, len(agents), program=command, job=job, agent=agent,
                       env={"OMP_NUM_THREADS": "1", **WANTED, **variables})
        for rank, agent in enumerate(agents)
    ]  # fmt: skip


numbers = iter(range(1000))


def test_it_is_off_unless_asked_for():
    with nodes(2, server="0") as rig:
        assert_all_ok(orders(rig, 2, "2"))
        assert rig.newest_job()["nccl_tensors"] == 0 and rig.newest_job()["sent_bytes"] > 0
        assert all("NCCL" not in agent.text() for agent in rig.agents)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"libraries": {1: "/nowhere/libnccl.so"}}, 'GB-D625 NO_NCCL: job "[^"]*", node "node-1": /nowhere'),
        ({"wrong": "hang_connect", "timeout_ms": 3000}, "GB-D627 NCCL_TIMEOUT: .*connect has not ended by its dead"),
    ],
    ids=["no library on one node", "no connection"],
)
def test_where_nccl_cannot_be_all_nodes_take_the_host_and_one_line_says_why(options, reason):
    with nodes(2, **options) as rig:
        assert_all_ok(orders(rig, 4, "3"))
        job = rig.newest_job()
        assert job["nccl_tensors"] == 0 and job["sent_bytes"] > 0 and re.search(reason, job["no_nccl"]), job
        for agent in rig.agents:
            said = [line for line in agent.text().splitlines() if BY_HOST in line]
            assert len(said) == 1 and re.search(reason, said[0]), agent.text()


def test_a_node_in_host_memory_has_all_take_the_host(three_nodes):
    job = "not all of them"
    command = [PYTHON, str(RANKS / "gpu/nccl_orders.py"), "double", "3"]
    ranks = [
        three_nodes.start_rank(rank, 3, program=command, job=job, agent=rank, env={**said, "OMP_NUM_THREADS": "1"})
        for rank, said in enumerate([WANTED, {"GRADBUS_EXPECT": "staged"}, WANTED])
    ]
    assert_all_ok([rank.finish() for rank in ranks])
    shown = three_nodes.newest_job()
    assert shown["nccl_tensors"] == 0
    reason = 'GB-D628 NOT_ON_GPU: tensor "t.*" on node "node-1" is in memory of the host'
    assert re.search(reason, shown["no_nccl"]), shown


def running(rig, size, gate):
    """Ranks of nccl_orders.py that have made a step and wait for the file `gate`."""
    ranks = start_ranks(rig, PYTHON, "gpu/nccl_orders.py", size, "double", "1000", str(gate), **WANTED)
    assert ranks[0].process.stdout.readline().startswith("step")
    return ranks


# Expect: one error that names job, tensor and node; agents live; the next job takes the host.
def test_a_killed_process_ends_the_job_and_not_the_next_one(tmp_path):
    with nodes(2) as rig:
        ranks = running(rig, 2, tmp_path / "gate")
        (process,) = nccl_processes(rig.agents[1])
        os.kill(process, signal.SIGKILL)
        (tmp_path / "gate").touch()
        for rank in ranks:
            status, output = rank.finish()
            assert status != 0, output
            named = r'GB-D626 NCCL_FAILED: tensor "t\d", job "nccl_orders-\d+", node "node-1": .*signal 9'
            assert re.search(named, output), output
        assert_next_job_goes(rig, BY_HOST)
        assert 'GB-D626' in rig.newest_job()["no_nccl"]
        assert all(agent.alive() for agent in rig.agents)


@pytest.mark.parametrize("how", ["slow", "hang_call", "hang_abort"])
def test_a_hung_collective_ends_the_job_at_its_deadline(how):
    with nodes(2, wrong=how, timeout_ms=4000) as rig:
        results = orders(rig, 2, "2")
        named = r'GB-D627 NCCL_TIMEOUT: tensor "t\d", job "nccl_orders-\d+", node "node-\d"'
        for status, output in results:
            assert status != 0, output
            assert re.search(named, output), output
        assert_next_job_goes(rig, BY_HOST)
        assert all(agent.alive() for agent in rig.agents)


def test_a_killed_rank_takes_no_nccl_with_it(three_nodes, tmp_path):
    ranks = running(three_nodes, 3, tmp_path / "gate")
    assert all(len(nccl_processes(agent)) == 1 for agent in three_nodes.agents)
    ranks[1].process.send_signal(signal.SIGKILL)
    (tmp_path / "gate").touch()
    for rank in (ranks[0], ranks[2]):
        status, output = rank.finish()
        assert status != 0 and "GB-P101" in output, output
    for agent in three_nodes.agents:
        rigs.wait_until(lambda agent=agent: not nccl_processes(agent), what="NCCL processes to end")
    assert_next_job_goes(three_nodes, BY_NCCL)

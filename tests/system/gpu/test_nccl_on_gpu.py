"""NCCL itself sums gradients on a GPU: each agent has one rank of the communicator, all on the first GPU.

NCCL refuses two ranks on one GPU of one host. NCCL_HOSTID gives each agent a host of its own, so ranks talk over
NCCL's sockets on the loopback.
"""

import contextlib
import importlib.util
import pathlib
import sys

import pytest
import rig as rigs
from conftest import assert_all_ok, run_ranks

torch = pytest.importorskip("torch")
pytest.importorskip("gradbus.torch")
WANTED = {"GRADBUS_DEVICE_MEMORY": "1", "GRADBUS_EXPECT": "shared"}
TENSORS = 7  # of nccl_orders.py


def nccl_of_torch():
    """The library of the wheel that torch depends on."""
    spec = importlib.util.find_spec("nvidia.nccl") if importlib.util.find_spec("nvidia") else None
    folders = spec.submodule_search_locations if spec else []
    files = [file for folder in folders for file in pathlib.Path(folder).glob("lib/libnccl.so.2")]
    return str(files[0]) if files else "libnccl.so.2"


pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda.is_available() is false"),
]


@contextlib.contextmanager
def nodes(agents, **variables):
    """A coordinator with --nccl, and agents that pass for hosts of their own."""
    with pytest.MonkeyPatch.context() as patch:
        wanted = {"GRADBUS_SERVER_NCCL": "1", "GRADBUS_NCCL": nccl_of_torch(), "NCCL_SOCKET_IFNAME": "lo", **variables}
        for name, value in wanted.items():
            patch.setenv(name, value)
        with rigs.cluster(0) as running:
            for index in range(agents):
                patch.setenv("NCCL_HOSTID", f"node-{index}")
                running.start_agent(f"node-{index}")
            yield running


@pytest.fixture(scope="module")
def three_nodes():
    with nodes(3) as running:
        yield running


# Expect: exact sums, and no byte over the transports of the agents.
@pytest.mark.parametrize("size", [3, 6])
def test_tensors_that_are_ready_in_other_orders_on_each_node(three_nodes, size):
    assert_all_ok(run_ranks(three_nodes, sys.executable, "gpu/nccl_orders.py", size, "cuda", "20", **WANTED))
    job = three_nodes.newest_job()
    assert job["nccl_tensors"] == TENSORS and job["no_nccl"] == "" and job["sent_bytes"] == 0, job


@pytest.mark.parametrize("size", [2, 4])
def test_a_training_has_the_bits_of_host_memory(size):
    with nodes(2) as rig:
        assert_all_ok(run_ranks(rig, sys.executable, "gpu/staged.py", size, "compare", "cuda", "sync", **WANTED))
        assert rig.newest_job()["nccl_tensors"] > 0  # those of the run in host memory are others


# Two ranks of one communicator on one GPU of one host: NCCL refuses.
def test_where_nccl_refuses_the_host_sums():
    with pytest.MonkeyPatch.context() as patch, nodes(0) as rig:
        patch.setenv("NCCL_HOSTID", "the same")
        rig.start_agent("node-0")
        rig.start_agent("node-1")
        assert_all_ok(run_ranks(rig, sys.executable, "gpu/nccl_orders.py", 2, "cuda", "3", **WANTED))
        job = rig.newest_job()
        assert job["nccl_tensors"] == 0 and job["sent_bytes"] > 0 and "GB-D62" in job["no_nccl"], job
        assert all(agent.alive() for agent in rig.agents)

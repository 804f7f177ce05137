"""Gradients in GPU memory that agents own give the same bits as in host memory.

Agents load a test double of the CUDA plug-in (tests/unit/gpu/cuda_double.cc), whose streams are slow threads.
Ranks use a test double of a device. Each node has two GPUs.
"""

import contextlib
import os
import re
import signal

import pytest
import rig as rigs
from conftest import RANK_DEADLINE_S, RANKS, assert_all_ok, run_ranks, start_ranks

pytest.importorskip("torch")
pytestmark = pytest.mark.timeout(240)
PYTHON = str(rigs.REPOSITORY / ".venv/bin/python")
DOUBLE = rigs.BIN.parent / "lib" / "libcuda_double.so"
WANTED = {"GRADBUS_DEVICE_MEMORY": "1"}


@contextlib.contextmanager
def agents_with(kind, agents, shards=0, plugin=DOUBLE):
    """Daemons whose GPUs are of this kind of double."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADBUS_CUDA_PLUGIN", str(plugin))
        patch.setenv("GRADBUS_CUDA_DOUBLE", kind)
        with rigs.cluster(agents, shards=shards) as running:
            yield running


@pytest.fixture(scope="module")
def one_node():
    with agents_with("streams", 1) as running:
        yield running


@pytest.fixture(scope="module")
def two_nodes():
    with agents_with("streams", 2, shards=2) as running:
        yield running


@pytest.fixture(scope="module")
def three_nodes():
    with agents_with("streams", 3) as running:
        yield running


def expect(where):
    return {**WANTED, "GRADBUS_EXPECT": where}


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_of_one_node_get_the_bits_of_host_memory(one_node, size):
    assert_all_ok(run_ranks(one_node, PYTHON, "gpu/staged.py", size, "compare", "double", "sync", **expect("shared")))


@pytest.mark.parametrize("size", [2, 4])
def test_ranks_of_two_nodes_do(two_nodes, size):
    modes = ["sync", "ps:sync"]
    assert_all_ok(run_ranks(two_nodes, PYTHON, "gpu/staged.py", size, "compare", "double", *modes, **expect("shared")))


# Without those that draw: which numbers, depends on the tensor's id, and a second training has others.
CODED = ["onebit", "int8:ef=residual", "topk:ratio=0.1", "fp16", "bf16:ef=residual", "fp8", "int8", "int4"]
CODED += ["signsgd", "efsignsgd", "signum", "topk:ratio=0.1,ef=dgc", "int8:ef=dgc,nesterov=yes"]


# Partitions that one node sums and sends to all; signs are a vote then.
OWNED = ["int8:ef=residual", "topk:ratio=0.1,ef=dgc", "signsgd", "signum", "onebit", "topk:ratio=0.1", "fp16"]


def coded(spec, communicator="allgather"):
    return f"sync/{spec}{',' if ':' in spec else ':'}communicator={communicator}"


# Expect: rounds, and what is remembered, have the bits of the processor's codecs.
@pytest.mark.parametrize("size", [2, 4, 6])
def test_what_is_compressed_on_gpus_of_two_nodes_has_the_bits_of_host_memory(two_nodes, size):
    modes = [coded(spec) for spec in (CODED if size == 4 else CODED[:3])]
    results = run_ranks(two_nodes, PYTHON, "gpu/staged.py", size, "compare", "double", *modes, **expect("all shared"))
    assert_all_ok(results)


@pytest.mark.parametrize("size", [3, 6])
def test_and_on_three_nodes(three_nodes, size):
    modes = [coded(spec) for spec in CODED[:3]]
    results = run_ranks(three_nodes, PYTHON, "gpu/staged.py", size, "compare", "double", *modes, **expect("all shared"))
    assert_all_ok(results)


@pytest.mark.parametrize(("where", "size"), [("two_nodes", 4), ("three_nodes", 3)])
def test_and_where_one_node_sums_for_all(request, where, size):
    modes = [coded(spec, "ps") for spec in (OWNED if size == 3 else OWNED[:2])]
    rig = request.getfixturevalue(where)
    assert_all_ok(run_ranks(rig, PYTHON, "gpu/staged.py", size, "compare", "double", *modes, **expect("all shared")))


# Expect: one node's ranks keep their elements in host memory, and payloads are the same.
def test_nodes_may_differ_in_where_they_compress(two_nodes):
    modes = [coded(spec, way) for spec in CODED[1:3] for way in ("allgather", "ps")]
    program = [PYTHON, str(RANKS / "gpu/staged.py"), "compare", "double", *modes]
    ranks = []
    for rank in range(4):
        where = expect("all shared") if rank < 2 else {"GRADBUS_EXPECT": "staged"}
        environment = dict(OMP_NUM_THREADS="1", **where)
        ranks.append(two_nodes.start_rank(rank, 4, job="mixed", program=program, env=environment))
    assert_all_ok([rank.finish(RANK_DEADLINE_S) for rank in ranks])


# Expect: as nobody says how, two nodes gather int8 and sum fp16 in flight; threshold is the processor's,
# one line says so.
@pytest.mark.parametrize(
    ("mode", "where"),
    [
        ("sync/int8", "all shared"),
        ("sync/fp16", "all shared"),
        ("sync/bf16:ef=residual", "all shared"),
        ("sync/topk", "all shared"),
        ("sync/blocktopk:block=64,ratio=0.1", "all shared"),
        ("delayed:k=1", "staged"),
        ("sync/threshold", None),
    ],
)
def test_what_is_delayed_or_not_coded_there_is_copied(two_nodes, mode, where):
    environment = expect(where) if where else WANTED
    results = run_ranks(two_nodes, PYTHON, "gpu/staged.py", 4, "compare", "double", mode, **environment)
    assert_all_ok(results)
    said = 'GB-D628 NOT_ON_GPU: tensor "[^"]*" of job "[^"]*": what is sent as "threshold[^"]*" is compressed by the'
    assert all(bool(re.search(said, output)) == (mode == "sync/threshold") for _, output in results), results


def test_what_else_there_is(two_nodes):
    whats = ["accumulate", "carried", "mixed", "refused", "scaler"]
    assert_all_ok(run_ranks(two_nodes, PYTHON, "gpu/staged.py", 4, "check", "double", *whats, **expect("shared")))


@pytest.mark.parametrize(
    "words",
    [
        ["training/optimizer.py"],
        ["training/state.py"],
        ["parameter_server/shards.py", "counting", "ps:async"],
        ["parameter_server/shards.py", "counting", "ps:quorum,q=2"],
        ["parameter_server/shards.py", "other_memory"],
    ],
    ids=" ".join,
)
def test_a_program_of_host_memory_runs_on_a_device(two_nodes, words):
    assert_all_ok(run_ranks(two_nodes, PYTHON, "gpu/staged.py", 4, "under", *words, **expect("shared")))


@pytest.mark.parametrize(
    ("kind", "plugin", "reason"),
    [
        ("apart", DOUBLE, "GB-D624 GPU_FAILED: .*another GPU's memory: one GPU cannot use the other's memory"),
        ("full", DOUBLE, "GB-D623 GPU_MEMORY: .*: memory: cudaMalloc: out of memory"),
        ("no_driver", DOUBLE, "GB-D622 NO_GPU: "),
        ("streams", "/nowhere/a.so", "GB-D620 NO_CUDA_PLUGIN: "),
    ],
    ids=["apart", "full", "no_driver", "no_plugin"],
)
def test_where_it_cannot_be_gradients_are_copied_and_one_line_says_why(kind, plugin, reason):
    with agents_with(kind, 1, plugin=plugin) as rig:
        results = run_ranks(rig, PYTHON, "gpu/staged.py", 2, "compare", "double", "sync", **expect("staged"))
    assert_all_ok(results)
    for _, output in results:
        said = [line for line in output.splitlines() if "gradients are copied through shared memory" in line]
        assert len(said) == 1, output
        assert re.search(reason, said[0]), said


def test_one_rank_in_host_memory_has_all_of_its_node_copied(one_node):
    program = [PYTHON, str(RANKS / "gpu/staged.py"), "under", "training/optimizer.py"]
    job = {"job": "not all", "program": program}
    ranks = [
        one_node.start_rank(0, 2, env=dict(OMP_NUM_THREADS="1", **expect("staged")), **job),
        one_node.start_rank(1, 2, env=dict(OMP_NUM_THREADS="1", GRADBUS_EXPECT="staged"), **job),
    ]
    results = [rank.finish(RANK_DEADLINE_S) for rank in ranks]
    assert_all_ok(results)
    assert 'local rank 1 has its elements in memory of the host' in results[0][1]


@pytest.mark.parametrize("where", ["one_node", "two_nodes"])
def test_nobody_waits_but_streams(where, request):
    """Ranks whose streams are slow: a sum has what they compute, and they get it when it is there."""
    assert_all_ok(run_ranks(request.getfixturevalue(where), PYTHON, "gpu/slow_streams.py", 4, **WANTED))


@pytest.mark.parametrize(
    "spec", ["fp16:communicator=allgather", "fp16", "topk:ratio=1,ef=none", "fp16:communicator=ps"]
)
def test_nobody_waits_for_codecs_either(two_nodes, spec):
    assert_all_ok(run_ranks(two_nodes, PYTHON, "gpu/slow_streams.py", 4, spec, **WANTED))


def test_a_rank_that_is_killed_takes_nothing_with_it(one_node):
    ranks = start_ranks(one_node, PYTHON, "gpu/staged.py", 2, "under", "training/optimizer.py", **expect("shared"))
    agent = one_node.agents[0]
    rigs.wait_until(lambda: any("GPU" in name for name in names(agent)), what="memory of GPUs")
    ranks[1].process.send_signal(signal.SIGKILL)
    status, output = ranks[0].finish()
    assert status != 0 and "GB-P101" in output, output
    rigs.wait_until(lambda: not any("GPU" in name for name in names(agent)), what="memory of GPUs to be freed")
    assert agent.alive()


def names(agent):
    """Of what it has open."""
    for descriptor in os.listdir(f"/proc/{agent.pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            yield os.readlink(f"/proc/{agent.pid}/fd/{descriptor}")

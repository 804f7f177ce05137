"""Parameters on a GPU: two ranks, both on its first one, train to the same bits as in host memory."""

import json
import shutil
import sys

import pytest
import rig as rigs
from conftest import RANK_DEADLINE_S, assert_all_ok, run_ranks

torch = pytest.importorskip("torch")
pytest.importorskip("gradbus.torch")

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda.is_available() is false"),
]


@pytest.fixture(scope="module")
def agents_and_shards():
    with rigs.cluster(2, shards=2) as running:
        yield running


@pytest.fixture(scope="module")
def this_python():
    """Whose torch has found a GPU."""
    return sys.executable


@pytest.mark.parametrize(
    "modes",
    [
        ["sync", "delayed:k=1", "delayed:k=2", "ps:sync"],
        ["localsgd:H=2", "diloco:H=4,fragments=2,overlap=1", "gossip:every=1,wait=1"],
        ["sync/int8", "delayed:k=1/topk:ratio=0.1", "diloco:H=3/int8"],
    ],
    ids=["gradients", "parameters", "compressed"],
)
def test_every_mode_ends_in_the_same_bits(agents_and_shards, this_python, modes):
    assert_all_ok(run_ranks(agents_and_shards, this_python, "gpu/staged.py", 2, "compare", "cuda", *modes))


CODED = ["fp16", "bf16:ef=residual", "fp8", "int8:ef=residual", "int4", "signsgd", "efsignsgd", "onebit"]


# Expect: two processes and their agent on one GPU; sums, and what is coded and remembered there.
@pytest.mark.parametrize("sharing", ["legacy", "vmm"])
def test_gradients_in_memory_of_the_agent(this_python, sharing):
    wanted = {"GRADBUS_DEVICE_MEMORY": "1", "GRADBUS_EXPECT": "all shared"}
    coded = [f"sync/{spec}{',' if ':' in spec else ':'}communicator=allgather" for spec in CODED]
    with rigs.cluster(2, "--device-sharing", sharing) as rig:
        for size in (2, 4):  # one and two ranks a node
            words = ["compare", "cuda", "sync", "sync/fp16", *coded]
            assert_all_ok(run_ranks(rig, this_python, "gpu/staged.py", size, *words, **wanted))
        for agent in rig.agents:
            assert f"memory of GPUs is shared with ranks by {sharing}" in agent.text(), agent.text()


@pytest.mark.parametrize("what", ["accumulate", "carried", "mixed", "operations", "refused", "scaler", "unstopped"])
def test_what_else_there_is(agents_and_shards, this_python, what):
    assert_all_ok(run_ranks(agents_and_shards, this_python, "gpu/staged.py", 2, "check", "cuda", what))


# Expect: the segment with the gradients is registered with CUDA while the optimizer lives.
def test_shared_memory_is_pinned(agents_and_shards, this_python):
    assert_all_ok(run_ranks(agents_and_shards, this_python, "gpu/staged.py", 2, "check", "cuda", "pinned"))


# Sparse gradients are refused on a GPU. Threads and workers do not inherit the default device of on_device.py. The
# GPU's thread of backward, which is one for all models, waits for the exchange: two models in two threads do not train.
NOT_ON_GPUS = ["sparse_embedding_bag", "trained_in_a_thread", "two_models_in_two_threads", "data_loader_with_workers"]


# Expect: the trainings of test_cases.py, with every tensor on the GPU.
@pytest.mark.parametrize("memory", ["0", "1"], ids=["copied", "shared"])
@pytest.mark.parametrize("agents", [1, 2])
def test_trainings_equal_one_process(this_python, agents, memory):
    with rigs.cluster(agents) as rig:
        words = ["cuda", "cases/cases.py", "but", *NOT_ON_GPUS]
        assert_all_ok(run_ranks(rig, this_python, "gpu/on_device.py", 2, *words, GRADBUS_DEVICE_MEMORY=memory))


def train_example(rig, python, name, *options):
    """Rank 0's JSON line of two ranks of an example on the first GPU."""
    program = [python, str(rigs.REPOSITORY / "examples" / name / "train.py"), "--device", "cuda", *options]
    results = [rank.finish(RANK_DEADLINE_S) for rank in rig.start_job(2, program=program, job=f"{name}-cuda")]
    assert [status for status, _ in results] == [0, 0], results
    return json.loads(results[0][1].strip().splitlines()[-1])


def test_the_digits_are_learned(agents_and_shards, this_python):
    result = train_example(agents_and_shards, this_python, "digits", "--time")
    assert result["accuracy"] >= 0.96 and result["ranks_identical"], result


@pytest.mark.skipif(shutil.which("bible") is None, reason="no program 'bible'")
def test_the_text_is_learned(agents_and_shards, this_python):
    few = ("--steps", "60", "--batch-size", "16", "--context", "32", "--width", "64", "--layers", "2", "--lr", "8e-3")
    result = train_example(agents_and_shards, this_python, "charlm", *few)
    assert result["loss_nats_per_char"] < 3.0 and result["ranks_identical"], result

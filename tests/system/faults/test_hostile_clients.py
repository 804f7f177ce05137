"""Clients that mean harm, against the real processes. Each joins like any client, then writes garbage into
what it shares with the agent. It may only end its own jobs: agents live on, and a neighbour's job on the
same agents stays right to the last element."""

import subprocess

import pytest
import rig as rigs

SEEDS = (1, 2)
# Of `gradbus bench codec --list`, with what makes each select something of 3,000 elements.
CODECS = [
    "topk:ratio=0.1", "dgc:ratio=0.1", "randk:ratio=0.1", "threshold:value=0.5", "blocktopk:ratio=0.1,block=64",
    "powersgd", "rows", "fp16", "bf16", "fp8", "int8", "int4", "qsgd", "terngrad", "signsgd", "efsignsgd", "onebit",
    "signum", "natural",
]  # fmt: skip
SELECTIONS = CODECS[:4]  # what ef=dgc is for
SHARD_MODES = ["none@ps:sync", "none@ps:async,lr=0.1", "topk:ratio=0.1@ps:sync", "int8@ps:async,lr=0.1",
               "none@ps:ssp,max_staleness=2,lr=0.1", "topk:ratio=0.1@ps:ssp,max_staleness=2,lr=0.1"]


def with_memory(codec, memory):
    """The codec with another memory than its own."""
    return f"{codec}{',' if ':' in codec else ':'}ef={memory}"


def attack(rig, verb, seed, jobs, first, second, *compressions):
    """Runs hostile_rank, its two ranks on the agents of those indices, beside a job that checks every sum."""
    neighbours = rig.start_job(2, "loop:y:100000:60", job="neighbour")
    rig.wait_for_rank(0, "neighbour")
    sockets = [rig.agents[index].ready["socket"] for index in (first, second)]
    command = [str(rigs.BIN / "hostile_rank"), verb, str(seed), str(jobs), *sockets, *compressions]
    done = subprocess.run(command, capture_output=True, text=True, timeout=rigs.DEADLINE_S, check=False)
    for daemon in [*rig.agents, *rig.shards, rig.server]:
        assert daemon.alive() and "GB-X001" not in daemon.text(), daemon.text()[-2000:]
    assert done.returncode == 0 and done.stdout.endswith(f"done {jobs}\n"), done
    assert all(rank.process.poll() is None for rank in neighbours), neighbours[0].finish()


def test_every_codec_is_attacked():
    command = [rigs.BIN / "gradbus", "bench", "codec", "--list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    names = {line.split()[0] for line in listed.splitlines() if line[0] != " "} - {"none", "of"}
    assert {codec.partition(":")[0] for codec in CODECS} == names


@pytest.mark.parametrize("verb", ["records", "local_reductions"])
@pytest.mark.parametrize("seed", SEEDS)
def test_garbage_on_one_node(verb, seed):
    """Ranks of one node do the work themselves; the agent lends a hand and must not believe them."""
    with rigs.cluster(1) as rig:
        attack(rig, verb, seed, 60, 0, 0)


@pytest.mark.parametrize("verb", ["records", "local_reductions"])
@pytest.mark.parametrize("seed", SEEDS)
def test_garbage_between_nodes(verb, seed):
    """Every collective and codec between two agents."""
    with rigs.cluster(2) as rig:
        attack(rig, verb, seed, 30, 0, 1, *CODECS)


@pytest.mark.parametrize("verb", ["records", "local_reductions"])
def test_garbage_beside_shards(verb):
    """Tensors that parameter-server shards sum, or hold."""
    with rigs.cluster(2, shards=2) as rig:
        attack(rig, verb, 3, 30, 0, 1, *SHARD_MODES)


def test_a_record_for_a_broadcast_tensor_of_one_node():
    """One record of 64 bytes, of a tensor that nobody has to sum: it ends its own job, which it names."""
    with rigs.cluster(1) as rig:
        ranks = [rig.start_rank(r, 2, "bcast:w:1000:0", "spoil:assist" if r == 1 else "sleep:0", "sleep:0.3",
                                "red:x:10:i64:sum") for r in range(2)]
        for status, out in (rank.finish() for rank in ranks):
            assert status == 3 and "GB-S210" in out and 'rank 1 of job "job"' in out, out
        assert rig.agents[0].alive()
        assert [rank.finish()[0] for rank in rig.start_job(2, "red:x:1000:i64:sum", job="after")] == [0, 0]


@pytest.mark.parametrize("agents", [(0, 1), (0, 0)])
def test_elements_that_change_while_they_are_encoded(agents):
    """A rank writes NaN, Inf and numbers into gradients that it has given away, with every codec and memory."""
    codecs = CODECS + [with_memory(codec, memory) for codec in CODECS for memory in ("none", "residual")]
    codecs += [with_memory(codec, "dgc") for codec in SELECTIONS]
    shards = [text for text in SHARD_MODES if "none@" not in text]
    with rigs.cluster(2, shards=2) as rig:
        attack(rig, "floats", 4, 40, *agents, *codecs, *shards)

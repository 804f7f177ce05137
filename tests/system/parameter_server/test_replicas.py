"""Parameter-server shards with a copy of every chunk, on real daemons of which some are killed."""

import random
import time

import pytest
import rig as rigs
from conftest import start_ranks

pytestmark = pytest.mark.timeout(240)
PYTHON = str(rigs.REPOSITORY / ".venv/bin/python")
LIBRARY = str(rigs.BIN.parent / "lib/libgradbus.so")
STEPS = 60


def start(rig, size, *words, **variables):
    """Of three ranks two are on the first agent, one on the second."""
    return start_ranks(rig, PYTHON, "parameter_server/replicas.py", size, LIBRARY, *words, **variables)


def wait_for_steps(rank, steps):
    """Returns what it printed."""
    lines = [rank.process.stdout.readline() for _ in range(steps)]
    assert all(line.startswith("stepped") for line in lines), [*lines, rank.process.stdout.read()]
    return "".join(lines)


def lost_shards(rig):
    (job,) = rig.status()["jobs"]
    return [shard["shard"] for shard in job["shards"] if shard["lost"]]


def losses(rig):
    return rig.server.text().count("goes on without shard")


def assert_counted(ranks, killed_at):
    """All ranks have made all steps; prints how long the longest one took since the kill."""
    longest = 0.0
    for rank in ranks:
        code, output = rank.finish(120)
        assert code == 0 and output.endswith("ok\n"), output
        ends = [float(line.split()[1]) for line in output.splitlines() if line.startswith("stepped ")]
        after = [killed_at, *(end for end in ends if end > killed_at)]
        longest = max([longest, *(end - begin for begin, end in zip(after, after[1:]))])
    print(f"longest step after the kill: {longest:.3f} s")
    assert longest < 30


# Expect: whichever shard is killed, and whenever, the job goes on by itself and no gradient is lost or
# counted twice.
@pytest.mark.parametrize(
    ("mode", "victim", "seed", "codec"),
    [
        ("ps:async,lr=1,replicas=2", 0, 1, ()),
        ("ps:async,lr=1,replicas=2", 1, 2, ()),
        ("ps:async,lr=1", 2, 3, ()),  # two copies are the default
        ("ps:sync,replicas=2", 0, 4, ()),
        ("ps:sync,replicas=2", 2, 5, ()),
        ("ps:ssp,max_staleness=2,lr=1,replicas=2", 1, 6, ()),
        ("ps:quorum,q=2,lr=1,replicas=2", 2, 7, ()),
        ("ps:async,optimizer=lamb,lr=0.01", 0, 8, ()),
        ("ps:async,optimizer=lamb,lr=0.01,replicas=2", 1, 9, ()),
        ("ps:quorum,q=2,optimizer=lamb,lr=0.01", 2, 10, ()),
        # Tensors that are alike everywhere are exact in these codecs.
        ("ps:async,lr=1", 0, 11, ("fp16",)),
        ("ps:async,lr=1,replicas=2", 1, 12, ("onebit",)),
        ("ps:ssp,max_staleness=2,lr=1,replicas=2", 2, 13, ("onebit",)),
        ("ps:sync,replicas=2", 1, 14, ("onebit",)),
    ],
)
def test_a_killed_shard_costs_nothing(mode, victim, seed, codec):
    chance = random.Random(seed)
    with rigs.cluster(2, shards=3) as rig:
        ranks = start(rig, 3, "counted", mode, str(STEPS), *codec)
        wait_for_steps(ranks[0], chance.randrange(1, 12))
        time.sleep(chance.random() * 0.02)
        killed_at = time.monotonic()
        rig.shards[victim].kill()
        rigs.wait_until(lambda: losses(rig) == 1, what="the coordinator's word")
        assert f"goes on without shard shard-{victim}: " in rig.server.text()
        assert_counted(ranks, killed_at)
        assert lost_shards(rig) == [f"shard-{victim}"]


# Expect: of four shards two that have no chunk in common may die.
def test_shards_that_share_nothing_may_both_die():
    with rigs.cluster(2, shards=4) as rig:
        ranks = start(rig, 3, "counted", "ps:async,lr=1,replicas=2", str(STEPS))
        wait_for_steps(ranks[0], 3)
        killed_at = time.monotonic()
        rig.shards[0].kill()
        wait_for_steps(ranks[0], 5)
        rig.shards[2].kill()
        rigs.wait_until(lambda: losses(rig) == 2, what="the coordinator's words")
        assert_counted(ranks, killed_at)


# Expect: when both copies of a chunk are gone the job ends, and says why.
def test_two_neighbours_end_the_job():
    with rigs.cluster(2, shards=3) as rig:
        ranks = start(rig, 3, "forever", "ps:async,replicas=2")
        for rank in ranks:
            wait_for_steps(rank, 1)
        rig.shards[1].kill()
        rigs.wait_until(lambda: losses(rig) == 1, what="the first loss")
        rig.shards[2].kill()
        for rank in ranks:
            _, output = rank.finish(60)
            assert "GB-P103 SHARD_LOST" in output and "shard-2" in output, output
            assert "shard-1, lost before, had the other copy" in output, output


# Expect: the snapshots that a job leaves after it has lost a shard are of its end, that of the lost
# shard too; they restore a job, with copies again.
def test_snapshots_after_a_loss(tmp_path):
    keep = ("--snapshots", str(tmp_path), "--snapshot-every", "3600")  # at the end only
    with rigs.cluster(2) as rig:
        for index in range(3):
            rig.start_shard(f"shard-{index}", *keep)
        ranks = start(rig, 3, "counted", "ps:async,lr=1,replicas=2", str(STEPS), GRADBUS_JOB="train")
        wait_for_steps(ranks[0], 4)
        rig.shards[1].kill()
        outputs = [rank.finish(120) for rank in ranks]
        assert all(code == 0 and "ended" in output for code, output in outputs), outputs
        ended = outputs[0][1].split("ended ")[1].split()[0]
        rigs.wait_until(lambda: len(list(tmp_path.rglob("*.snapshot"))) == 3, what="a file for each shard")
        for mode in ("ps:async,restore=1", "ps:async,restore=1,replicas=2"):
            (again,) = start(rig, 1, "pulled", mode, GRADBUS_JOB="train")
            code, output = again.finish(60)
            assert code == 0 and f"pulled {ended} {ended}\n" in output, (ended, output)


def test_mistakes_are_named():
    with rigs.cluster(1, shards=1) as rig:
        for words, sentence in (
            (("ps:async,replicas=2",), "wants 2 shards, the job has 1"),
            (("ps:sync,replicas=3",), "replicas"),
        ):
            (rank,) = start(rig, 1, "refused", *words)
            _, output = rank.finish(60)
            assert "refused: GB-O911 BAD_MODE" in output and sentence in output, output

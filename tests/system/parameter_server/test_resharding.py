"""Parameter-server shards that come, go and come back while a job runs, on real daemons."""

import signal

import pytest
import rig as rigs
from conftest import assert_all_ok, start_ranks

pytestmark = pytest.mark.timeout(300)
PYTHON = str(rigs.REPOSITORY / ".venv/bin/python")
DEADLINE_S = 120


class Job:
    """Its ranks, of three two on the first agent, and what they are told to do."""

    def __init__(self, rig, *words, size=3):
        self.rig = rig
        self.file = rig.folder / "word"
        self.say("steps")
        self.ranks = start_ranks(
            rig, PYTHON, "parameter_server/resharding.py", size, words[0], str(self.file), *words[1:],
            GRADBUS_ELASTIC_TIMEOUT="100")
        rigs.wait_until(lambda: self.received("shard-0") > 0, DEADLINE_S, "the first steps")

    def say(self, word):
        part = self.file.with_suffix(".part")
        part.write_text(word)
        part.rename(self.file)

    def shards(self):
        for rank in self.ranks:
            assert rank.process.poll() is None, f"rank {rank.number} ended: {rank.finish(DEADLINE_S)}"
        jobs = [job for job in self.rig.status().get("jobs", []) if job["state"] == "running"]
        return {shard["shard"]: shard for shard in jobs[0]["shards"]} if jobs else {}

    def received(self, name):
        return self.shards().get(name, {"received_bytes": 0})["received_bytes"]

    def wait_for_shares(self, **wanted):
        """Two fences later all that moves has moved."""

        def there():
            shares = {name: shard["share"] for name, shard in self.shards().items() if shard["share"] > 0}
            return shares.keys() == wanted.keys() and all(
                abs(shares[name] - share) < 0.05 for name, share in wanted.items())  # fmt: skip

        rigs.wait_until(there, DEADLINE_S, f"shares {wanted}, not {self.shards()}")
        self.wait_for_fences(2)

    def fences(self):
        """That every rank has passed."""
        counts = [self.file.with_name(f"word.{rank.number}") for rank in self.ranks]
        return min(int((count.exists() and count.read_text()) or 0) for count in counts)

    def wait_for_fences(self, more):
        before = self.fences()
        rigs.wait_until(lambda: self.fences() >= before + more, DEADLINE_S, f"{more} more fences")

    def finish(self):
        self.say("stop")
        assert_all_ok([rank.finish(DEADLINE_S) for rank in self.ranks])


def lose(rig, index):
    name = f"shard-{index} "
    rig.shards[index].kill()
    rigs.wait_until(
        lambda: f"goes on without shard {name.strip()}: " in rig.server.text(), DEADLINE_S, f"the loss of {name}")


def restart_agent(rig, index):
    rig.agents[index].kill()
    rig.agents[index].process.wait(DEADLINE_S)
    rig.start_agent(f"node-{index}")
    rig.agents[index] = rig.agents.pop()


def restart_coordinator(rig):
    rig.server.kill()
    rig.server.process.wait(DEADLINE_S)
    rig.server = rig.start_daemon("gradbus-server", "--role=coordinator", "--listen", rig.server.ready["address"])
    rigs.wait_until(lambda: "goes on under this coordinator" in rig.server.text(), DEADLINE_S, "the job's return")


THIRD = 1 / 3


# Expect: a shard that comes waits for a fence, then has its part; no gradient is lost or counted twice.
@pytest.mark.parametrize(
    "words", [
        ["counted", "ps:async"], ["counted", "ps:async,replicas=1"], ["counted", "ps:ssp,max_staleness=2"],
        ["counted", "ps:quorum,q=1"], ["counted", "ps:async", "fp16"], ["counted", "ps:sync", "fp16"], ["whole"],
    ], ids=" ".join)  # fmt: skip
def test_a_shard_comes(words):
    with rigs.cluster(2, shards=2) as rig:
        job = Job(rig, *words)
        rig.start_shard("shard-2")
        rigs.wait_until(lambda: job.shards().get("shard-2", {}).get("waits"), DEADLINE_S, "a shard that waits")
        job.say("fences")
        job.wait_for_shares(**{"shard-0": THIRD, "shard-1": THIRD, "shard-2": THIRD})
        assert not job.shards()["shard-2"]["waits"]
        rigs.wait_until(lambda: job.received("shard-2") > 0, DEADLINE_S, "bytes that it has told of")
        job.finish()
        assert "shards have come; after the next fence" in rig.server.text()


# Expect: after a loss there are two copies again, so the next shard may be lost, and the next.
@pytest.mark.parametrize("words", [["counted", "ps:async"], ["counted", "ps:async", "fp16"], ["whole"]], ids=" ".join)
def test_shards_go_one_after_the_other(words):
    with rigs.cluster(2, shards=2) as rig:
        job = Job(rig, *words)
        job.say("fences")
        lose(rig, 0)
        said = "second copies again when another shard is started"
        rigs.wait_until(lambda: said in rig.server.text(), DEADLINE_S, said)
        rig.start_shard("shard-2")
        job.wait_for_shares(**{"shard-1": 0.5, "shard-2": 0.5})
        lose(rig, 1)
        rig.start_shard("shard-1")  # it comes back
        job.wait_for_shares(**{"shard-2": 0.5, "shard-1": 0.5})
        lose(rig, 2)
        job.finish()


# Expect: those that are left have two copies again without a new one.
def test_two_of_three_may_go():
    with rigs.cluster(2, shards=3) as rig:
        job = Job(rig, "counted", "ps:async")
        job.say("fences")
        lose(rig, 1)
        job.wait_for_shares(**{"shard-0": 0.5, "shard-2": 0.5})
        lose(rig, 2)  # the copy of what was lost first
        job.finish()


# Expect: a shard that is gone before the fence has held nothing.
def test_a_shard_that_comes_and_goes_before_a_fence():
    with rigs.cluster(2, shards=2) as rig:
        job = Job(rig, "counted", "ps:async")
        rig.start_shard("shard-2")
        rigs.wait_until(lambda: "shards have come" in rig.server.text(), DEADLINE_S, "the placement")
        lose(rig, 2)
        job.say("fences")
        job.wait_for_shares(**{"shard-0": 0.5, "shard-1": 0.5})
        job.finish()


# Expect: momenta and counts of steps move along: one rank ends as torch's optimizer in one process.
@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_what_the_optimizer_remembers_moves(name):
    with rigs.cluster(1, shards=2) as rig:
        job = Job(rig, "optimizer", name, size=1)
        job.say("fences")
        rig.start_shard("shard-2")
        job.wait_for_shares(**{"shard-0": THIRD, "shard-1": THIRD, "shard-2": THIRD})
        lose(rig, 0)
        job.wait_for_shares(**{"shard-1": 0.5, "shard-2": 0.5})
        job.finish()


# Expect: a job whose shards have moved outlives its agents, and its shards may move again.
def test_an_agent_restarts_after_a_move():
    with rigs.cluster(2, shards=2) as rig:
        job = Job(rig, "elastic")
        job.say("fences")
        rig.start_shard("shard-2")
        job.wait_for_shares(**{"shard-0": THIRD, "shard-1": THIRD, "shard-2": THIRD})
        restart_agent(rig, 1)
        job.wait_for_fences(2)
        lose(rig, 0)
        job.wait_for_shares(**{"shard-1": 0.5, "shard-2": 0.5})
        restart_agent(rig, 0)
        job.wait_for_fences(2)
        job.finish()


# Expect: the job goes on without a shard that stood still, and it takes that shard back.
def test_a_frozen_shard_that_was_replaced_comes_back():
    with rigs.cluster(2, shards=3, server_arguments=("--lease-ms", "3000")) as rig:
        job = Job(rig, "counted", "ps:async")
        job.say("fences")
        rig.shards[1].kill(signal.SIGSTOP)
        rigs.wait_until(lambda: "goes on without shard shard-1" in rig.server.text(), DEADLINE_S, "the loss")
        job.wait_for_shares(**{"shard-0": 0.5, "shard-2": 0.5})
        rig.shards[1].kill(signal.SIGCONT)
        job.wait_for_shares(**{"shard-0": THIRD, "shard-1": THIRD, "shard-2": THIRD})
        job.finish()


# Expect: a shard that came after one restart of the coordinator belongs to the job after the next one.
def test_a_shard_comes_between_two_restarts_of_the_coordinator():
    with rigs.cluster(2, shards=2) as rig:
        job = Job(rig, "counted", "ps:async")
        job.say("fences")
        restart_coordinator(rig)
        rig.start_shard("shard-2")
        job.wait_for_shares(**{"shard-0": THIRD, "shard-1": THIRD, "shard-2": THIRD})
        restart_coordinator(rig)
        job.wait_for_shares(**{"shard-0": THIRD, "shard-1": THIRD, "shard-2": THIRD})
        job.finish()

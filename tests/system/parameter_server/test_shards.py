"""Parameter-server modes on real daemons: coordinator, agents and shards."""

import json
import subprocess

import fork_server
import pytest
import rig as rigs
from conftest import assert_all_ok, clean_environment, run_ranks, start_ranks

pytestmark = pytest.mark.timeout(240)
TRAIN = str(rigs.REPOSITORY / "examples/digits/train.py")


@pytest.fixture(scope="module")
def newest():
    """What the shards do depends on no Python; the front end is tested with both."""
    return str(rigs.REPOSITORY / ".venv/bin/python")


@pytest.fixture(scope="module")
def three_agents():
    """Three agents and two shards; jobs do not disturb each other."""
    with rigs.cluster(3, shards=2) as running:
        yield running


@pytest.mark.parametrize("mode", ["ps:sync", "ps:async"])
def test_every_gradient_counts_once(three_agents, python, mode):
    assert_all_ok(run_ranks(three_agents, python, "parameter_server/shards.py", 6, "counting", mode))


@pytest.mark.parametrize("mode", ["ps:ssp,max_staleness=2", "ps:quorum", "ps:quorum,q=2"])
def test_every_gradient_counts_once_however_ranks_wait(three_agents, newest, mode):
    assert_all_ok(run_ranks(three_agents, newest, "parameter_server/shards.py", 3, "counting", mode))


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "adagrad", "lamb"])
def test_shards_step_as_torch_does(three_agents, python, name):
    assert_all_ok(run_ranks(three_agents, python, "parameter_server/shards.py", 1, "optimizer", name))


@pytest.mark.parametrize("mode", ["ps:async", "ps:ssp,max_staleness=2"])
def test_tensors_are_stepped_on_as_a_whole(three_agents, newest, mode):
    assert_all_ok(run_ranks(three_agents, newest, "parameter_server/shards.py", 6, "layers", mode))


@pytest.mark.parametrize("staleness", ["0", "3"])
def test_nobody_gets_further_ahead_than_allowed(three_agents, newest, staleness):
    assert_all_ok(run_ranks(three_agents, newest, "parameter_server/shards.py", 3, "ahead", staleness))


def test_a_slow_rank_holds_nobody_up(three_agents, newest):
    seconds = {}
    for mode in ("ps:sync", "ps:async"):
        results = run_ranks(three_agents, newest, "parameter_server/shards.py", 3, "slow", mode, "20", "0.1")
        assert_all_ok(results)
        seconds[mode] = [float(output.split("seconds ")[1].split()[0]) for _, output in results]
    # The slow rank makes 20 steps of 0.1 s; the others begin to count a little later.
    assert seconds["ps:sync"][0] > 1.8 and seconds["ps:async"][2] > 2.0
    assert seconds["ps:async"][0] < 0.7 * seconds["ps:sync"][0], seconds


def test_status_shows_shards_and_what_they_moved(newest):
    with rigs.cluster(2, shards=2) as rig:
        start_ranks(rig, newest, "parameter_server/shards.py", 2, "forever", "ps:async")
        words = [rigs.BIN / "gradbus", "status", "--coordinator", rig.server.ready["address"]]

        def shown(*more):
            return subprocess.run([*words, *more], capture_output=True, text=True, timeout=60, check=False).stdout

        def moved():
            jobs = json.loads(shown("--json"))["jobs"]
            return jobs and sum(shard["received_bytes"] for shard in jobs[0]["shards"])

        rigs.wait_until(moved, what="shards that have received gradients")
        status = json.loads(shown("--json"))
        assert sorted(a["name"] for a in status["agents"] if a["shard"]) == ["shard-0", "shard-1"]
        (job,) = status["jobs"]
        assert [shard["shard"] for shard in job["shards"]] == ["shard-0", "shard-1"]
        assert any(tensor["mode"].startswith("ps:async") for tensor in job["tensors"]), job["tensors"]
        assert "shards: 2" in shown() and "RECEIVED" in shown()

        def stale():  # by mode and agent
            return {of["agent"]: of for of in json.loads(shown("--json"))["jobs"][0]["staleness"]}

        rigs.wait_until(lambda: len(stale()) == 2, what="staleness of both nodes")
        for of in stale().values():
            assert of["mode"].startswith("ps:async") and 0 <= of["mean"] <= of["most"], of
        assert "STALE" in shown()


def test_what_is_put_back_has_to_fit(three_agents, newest):
    assert_all_ok(run_ranks(three_agents, newest, "parameter_server/shards.py", 4, "other_memory"))


def test_a_pull_where_shards_only_sum_is_refused(three_agents, newest):
    assert_all_ok(run_ranks(three_agents, newest, "parameter_server/shards.py", 1, "nothing_to_pull"))


@pytest.mark.parametrize("mode", ["ps:sync", "ps:async,replicas=1"])
def test_a_lost_shard_ends_the_job_by_name(newest, mode):
    with rigs.cluster(2, shards=2) as rig:
        ranks = start_ranks(rig, newest, "parameter_server/shards.py", 2, "forever", mode)
        first = [rank.process.stdout.readline() for rank in ranks]
        assert first == ["stepped\n"] * 2, first
        assert ("has no second copy" in rig.shards[0].text()) == (mode != "ps:sync"), rig.shards[0].text()
        rig.shards[1].kill()
        for rank in ranks:
            status, output = rank.finish(30)
            assert "PeerLostError GB-P103 SHARD_LOST" in output and "shard-1" in output, output


def test_a_lost_agent_leaves_the_shards_usable(newest):
    with rigs.cluster(2, shards=2) as rig:
        ranks = start_ranks(rig, newest, "parameter_server/shards.py", 2, "forever", "ps:async")
        assert all(rank.process.stdout.readline() == "stepped\n" for rank in ranks)
        ranks[1].process.kill()
        _, output = ranks[0].finish(30)
        assert "GB-P101" in output, output
        assert_all_ok(run_ranks(rig, newest, "parameter_server/shards.py", 2, "counting", "ps:async"))
        assert all(shard.alive() for shard in rig.shards)


def test_mistakes_are_named(three_agents, newest):
    for mode, words in (
        ("ps:ssp,max_staleness=-1", "max_staleness is \"-1\", expected a whole number from 0"),
        ("ps:asink", "no mode \"ps:asink\"; did you mean \"ps:async\"?"),
        ("ps:quorum,q=4", "wants 4 nodes, the job has 3"),
    ):
        assert_all_ok(run_ranks(three_agents, newest, "parameter_server/shards.py", 3, "refused", mode, words))
    with rigs.cluster(1) as rig:
        words = ["refused", "ps:async", "GB-O912 NO_SHARDS"]
        assert_all_ok(run_ranks(rig, newest, "parameter_server/shards.py", 1, *words))


@pytest.mark.parametrize("mode, rates", [
    ("ps:sync", ["0.1"]), ("ps:ssp,max_staleness=4", ["0.1"]),
    ("ps:ssp,optimizer=lamb", ["0.01", "--last-lr-share", "0.1"])])
def test_an_unchanged_program_trains_through_shards(mode, rates):
    command = [str(rigs.BIN / "gradbus"), "run", "-np", "4", "--agents", "2", "--shards", "2", "--link", "1gbit",
               "--mode", mode, "--no-prefix", "--", str(rigs.REPOSITORY / ".venv/bin/python"), TRAIN,
               "--epochs", "8", "--lr", *rates]  # fmt: skip
    done = fork_server.run(command, env=clean_environment(), timeout=120, check=False, text=True,
                          capture_output=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["ranks_identical"] and result["accuracy"] > 0.9, result


# Expect: one model, three modes, and replicas that end the same; without shards it is the embedding
# that cannot be exchanged.
def test_three_modes_in_one_model():
    hybrid = rigs.REPOSITORY / "examples/hybrid/policy.toml"
    def run(shards):
        command = [str(rigs.BIN / "gradbus"), "run", "-np", "3", "--agents", "3", "--shards", shards, "--no-prefix",
                   "--policy", str(hybrid), "--", str(rigs.REPOSITORY / ".venv/bin/python"),
                   str(rigs.REPOSITORY / "examples/charlm/train.py"), "--steps", "25", "--batch-size", "6",
                   "--sample", "0"]  # fmt: skip
        return fork_server.run(command, env=clean_environment(), timeout=150, check=False, text=True,
                              capture_output=True)  # fmt: skip

    refused = run("0").stderr
    assert "GB-O912 NO_SHARDS" in refused and "characters.weight" in refused, refused
    done = run("2")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["ranks_identical"] and result["loss_nats_per_char"] < 4.0, result

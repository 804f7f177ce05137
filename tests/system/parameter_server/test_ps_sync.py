"""Compressed gradients through parameter-server shards, on real daemons."""

import json
import subprocess

import pytest
import rig as rigs
from conftest import assert_all_ok, run_ranks, start_ranks

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def newest():
    return str(rigs.REPOSITORY / ".venv/bin/python")


@pytest.fixture(scope="module")
def two_agents():
    with rigs.cluster(2, shards=2) as running:
        yield running


def test_every_gradient_counts_once(two_agents, python):
    assert_all_ok(run_ranks(two_agents, python, "parameter_server/ps_sync.py", 4, "counting"))


@pytest.mark.parametrize("codec", ["onebit", "topk:ratio=0.2"])
def test_what_encoding_twice_leaves_out_is_not_lost(two_agents, newest, codec):
    assert_all_ok(run_ranks(two_agents, newest, "parameter_server/ps_sync.py", 2, "feedback", codec))


def test_new_buckets_lose_nothing_that_shards_keep(two_agents, newest):
    assert_all_ok(run_ranks(two_agents, newest, "parameter_server/ps_sync.py", 2, "rebuild"))


def test_one_node_pushes_payloads_too(newest):
    with rigs.cluster(1, shards=2) as rig:
        assert_all_ok(run_ranks(rig, newest, "parameter_server/ps_sync.py", 2, "counting"))


# Expect: of 16 MiB a step each way and node, less than a twentieth; all of 1/32 is there.
def test_one_bit_both_ways_moves_less_than_a_twentieth(newest):
    steps = 6
    with rigs.cluster(2, shards=2) as rig:
        ranks = start_ranks(rig, newest, "parameter_server/ps_sync.py", 2, "large", str(steps), "onebit")
        assert all(rank.process.stdout.readline() == "stepped\n" for rank in ranks)
        words = [rigs.BIN / "gradbus", "status", "--json", "--coordinator", rig.server.ready["address"]]

        def moved():
            done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
            (job,) = json.loads(done.stdout)["jobs"]
            return sum(shard["received_bytes"] + shard["sent_bytes"] for shard in job["shards"])

        dense = steps * 2 * 2 * 2048 * 2048 * 4
        rigs.wait_until(lambda: moved() >= dense / 32, what="all payloads in the status")
        assert moved() < dense / 20, moved() / dense

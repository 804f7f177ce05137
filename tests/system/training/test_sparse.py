"""Sparse gradients of embeddings, on real daemons."""

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
def nodes():
    with rigs.cluster(2, shards=2) as running:
        yield running


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("mode", ["sync", "delayed:k=1", "ps:sync"])
def test_training_is_that_of_one_process(nodes, python, mode, size):
    assert_all_ok(run_ranks(nodes, python, "training/sparse.py", size, "training", "adam", mode))


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adagrad"])
def test_other_optimizers_take_them_too(nodes, newest, optimizer):
    assert_all_ok(run_ranks(nodes, newest, "training/sparse.py", 2, "training", optimizer, "sync"))


@pytest.mark.parametrize("mode", ["sync", "delayed:k=2", "ps:sync"])
def test_every_gradient_counts_once(nodes, newest, mode):
    assert_all_ok(run_ranks(nodes, newest, "training/sparse.py", 4, "counting", mode))


@pytest.mark.parametrize("mode", ["sync", "ps:async", "localsgd:H=2"])
def test_without_a_word_they_are_made_dense(nodes, newest, mode):
    assert_all_ok(run_ranks(nodes, newest, "training/sparse.py", 2, "unannounced", mode))


# Expect: of 25.6 MB a step each way and node, 256 rows and as many of the other's; all are there.
@pytest.mark.parametrize("mode", ["sync", "ps:sync"])
def test_an_embedding_moves_its_rows_and_not_its_table(newest, mode):
    steps = 6
    with rigs.cluster(2, shards=2) as rig:
        ranks = start_ranks(rig, newest, "training/sparse.py", 2, "large", mode, str(steps))
        assert all(rank.process.stdout.readline() == "stepped\n" for rank in ranks)
        words = [rigs.BIN / "gradbus", "status", "--json", "--coordinator", rig.server.ready["address"]]

        def moved():
            done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
            (job,) = json.loads(done.stdout)["jobs"]
            counters = [job] if mode == "sync" else job["shards"]
            return sum(counter["received_bytes"] + counter["sent_bytes"] for counter in counters)

        # In sync each node sends its rows and receives the other's, and both are counted; a shard
        # receives both nodes' and sends both the union.
        rows = steps * (4 if mode == "sync" else 2 + 4) * 256 * 64 * 4
        dense = steps * 4 * 100_000 * 64 * 4
        rigs.wait_until(lambda: moved() >= 0.98 * rows, what="all payloads in the status")
        assert moved() < 1.1 * rows < dense / 50, moved() / rows

"""Compression in the modes in which shards hold the parameters, on real daemons."""


import pytest
import rig as rigs
from conftest import assert_all_ok, run_ranks, start_ranks

pytestmark = pytest.mark.timeout(240)

MODES = ["ps:async", "ps:ssp,max_staleness=2", "ps:quorum,q=2,deadline_ms=2000"]


@pytest.fixture(scope="module")
def newest():
    return str(rigs.REPOSITORY / ".venv/bin/python")


@pytest.fixture(scope="module")
def nodes():
    with rigs.cluster(2, shards=2) as running:
        yield running


@pytest.fixture(scope="module")
def one_node():
    with rigs.cluster(1, shards=1) as running:
        yield running


@pytest.mark.parametrize("mode", MODES)
def test_every_gradient_counts_once(nodes, python, mode):
    assert_all_ok(run_ranks(nodes, python, "parameter_server/async_ps.py", 4, "counting", mode))


@pytest.mark.parametrize("mode", MODES)
def test_training_ends_where_dense_gradients_end(nodes, newest, mode):
    codecs = ["topk:ratio=0.05", "onebit", "int8", "rows", "none"]
    assert_all_ok(run_ranks(nodes, newest, "parameter_server/async_ps.py", 2, "quadratic", mode, *codecs))


def test_steps_and_answers_are_those_of_a_simulation(one_node, python):
    assert_all_ok(run_ranks(one_node, python, "parameter_server/async_ps.py", 1, "replay"))


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adam"])
def test_rows_of_an_embedding_are_stepped_on_as_torch_does(one_node, newest, optimizer):
    assert_all_ok(run_ranks(one_node, newest, "parameter_server/async_ps.py", 1, "sparse", optimizer))


def test_memories_are_read_and_put_back(nodes, newest):
    assert_all_ok(run_ranks(nodes, newest, "parameter_server/async_ps.py", 4, "memory"))


def test_what_was_remembered_elsewhere_goes_into_gradients_alone(nodes, newest):
    assert_all_ok(run_ranks(nodes, newest, "parameter_server/async_ps.py", 4, "carried"))


def moved_by(rig):
    (job,) = rig.status()["jobs"]
    return sum(shard["received_bytes"] + shard["sent_bytes"] for shard in job["shards"])


# Expect: after the first round, in which one node brings all parameters and both get them, less than
# a fifteenth of the gradients and parameters of each step; all of 1/32 is there.
def test_one_bit_both_ways_moves_less_than_a_fifteenth(newest):
    steps, table = 6, 4 * 2048 * 2048
    with rigs.cluster(2, shards=2) as rig:
        ranks = start_ranks(rig, newest, "parameter_server/async_ps.py", 2, "large", str(steps), "onebit")
        assert all(rank.process.stdout.readline() == "stepped\n" for rank in ranks)
        first, dense = 3 * table, steps * 2 * 2 * table
        rigs.wait_until(lambda: moved_by(rig) >= first + dense / 32, what="all payloads in the status")
        assert moved_by(rig) - first < dense / 15, (moved_by(rig) - first) / dense


# Expect: 256 rows up, and down those and the other node's of which it has not heard.
def test_an_embedding_moves_its_rows_both_ways(newest):
    steps, table = 6, 100_000 * 64 * 4
    with rigs.cluster(2, shards=2) as rig:
        ranks = start_ranks(rig, newest, "parameter_server/async_ps.py", 2, "rows", str(steps))
        assert all(rank.process.stdout.readline() == "stepped\n" for rank in ranks)
        up, first = steps * 2 * 256 * 64 * 4, 3 * table
        rigs.wait_until(lambda: moved_by(rig) >= first + 2 * up, what="all rows in the status")
        assert moved_by(rig) - first < 1.1 * 3 * up < steps * 4 * table / 200


def test_codecs_that_bring_nothing_nearer_are_refused_by_name(nodes, newest):
    assert_all_ok(run_ranks(nodes, newest, "parameter_server/async_ps.py", 1, "refused"))

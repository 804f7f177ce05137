"""What a script does to an optimizer and its parameters where shards step: it is right, or refused with its name."""

import pytest
import rig as rigs
from conftest import assert_all_ok, run_ranks

pytestmark = pytest.mark.timeout(240)

PROGRAM = "parameter_server/edited_optimizers.py"


@pytest.fixture(scope="module")
def nodes():
    with rigs.cluster(2, shards=2) as running:
        yield running


@pytest.fixture(scope="module")
def newest():
    return str(rigs.REPOSITORY / ".venv/bin/python")


def test_learning_rates_follow_their_groups(nodes, python):
    assert_all_ok(run_ranks(nodes, python, PROGRAM, 2, "groups", "ps:async"))


def test_a_group_that_was_split_keeps_one_learning_rate(nodes, newest):
    assert_all_ok(run_ranks(nodes, newest, PROGRAM, 4, "split_group", "ps:async"))


def test_steps_that_shards_do_not_make_are_refused(nodes, python):
    assert_all_ok(run_ranks(nodes, python, PROGRAM, 1, "other_classes", "ps:async"))


@pytest.mark.parametrize("ranks", [1, 4])
def test_options_that_shards_know_are_not_changed_silently(nodes, newest, ranks):
    assert_all_ok(run_ranks(nodes, newest, PROGRAM, ranks, "options", "ps:async"))


@pytest.mark.parametrize("mode", ["ps:async", "ps:ssp,max_staleness=2"])
def test_parameters_written_by_hand_are_not_lost_silently(nodes, newest, mode):
    assert_all_ok(run_ranks(nodes, newest, PROGRAM, 4, "written", mode))


def test_zero_grad_does_not_seem_to_drop_what_shards_have(nodes, newest):
    assert_all_ok(run_ranks(nodes, newest, PROGRAM, 4, "dropped", "ps:async"))


def test_a_gradient_scaler_is_refused(nodes, newest):
    assert_all_ok(run_ranks(nodes, newest, PROGRAM, 2, "scaled", "ps:async"))

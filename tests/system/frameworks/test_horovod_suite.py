"""What Horovod's own tests have shown: join(), names of operations, models that differ."""

import pytest
from conftest import assert_all_ok, run_ranks

pytestmark = pytest.mark.timeout(200)


@pytest.mark.parametrize("size", [1, 3])
def test_ranks_with_fewer_batches_join(two_agents, python, size):
    assert_all_ok(run_ranks(two_agents, python, "frameworks/hvd/hvd_join.py", size))


@pytest.mark.parametrize("what", ["delayed", "counted"])
def test_ranks_join_in_other_modes(two_agents, python, what):
    assert_all_ok(run_ranks(two_agents, python, "frameworks/hvd/hvd_join_modes.py", 3, what))


@pytest.mark.parametrize("search", [
    {"GRADBUS_SCHEDULE": "auto"},
    {"GRADBUS_COMPRESSION": "auto"},
    {"HOROVOD_AUTOTUNE": "1", "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE": "2", "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES": "6"},
], ids=lambda search: next(iter(search)).lower())  # fmt: skip
def test_ranks_join_while_the_job_searches(two_agents, python, search):
    assert_all_ok(run_ranks(two_agents, python, "frameworks/hvd/hvd_join_search.py", 3, **search))


def test_what_others_have_reported(two_agents, python):
    assert_all_ok(run_ranks(two_agents, python, "frameworks/hvd/hvd_reports.py", 2))


@pytest.mark.parametrize("front", ["gradbus", "hvd"])
def test_operations_go_on_after_a_mismatch(two_agents, python, front):
    assert_all_ok(run_ranks(two_agents, python, "collectives/after_mismatch.py", 2, front))


@pytest.mark.parametrize("size", [1, 2])
def test_names_and_models_that_differ(two_agents, python, size):
    assert_all_ok(run_ranks(two_agents, python, "frameworks/hvd/hvd_names.py", size))

"""gradbus.state() on one rank alone."""

from conftest import assert_all_ok, run_ranks


def test_the_error_names_the_call(two_agents, python, tmp_path):
    assert_all_ok(run_ranks(two_agents, python, "faults/late_state.py", 2, str(tmp_path)))

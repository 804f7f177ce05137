"""The Python client through real daemons: four ranks on two agents, and alone in a world of one."""

import json
import re
import signal

import pytest
from conftest import RANK_DEADLINE_S, RANKS, assert_all_ok, clean_environment, run_ranks, start_ranks

pytestmark = pytest.mark.timeout(240)
# A busy machine gets more than the two seconds that are promised, and than the two slices of 0.1 s in
# which Ctrl-C is noticed. Every other end of these waits takes a minute.
DEATH_S = 8.0
INTERRUPT_S = 8.0


@pytest.mark.parametrize("size", [1, 3, 4])
def test_operations_give_what_the_rank_numbers_say(two_agents, python, size):
    assert_all_ok(run_ranks(two_agents, python, "launch/operations.py", size))


@pytest.mark.parametrize("size", [1, 4])
def test_optimizer_equals_one_process_on_the_global_batch(two_agents, python, size):
    assert_all_ok(run_ranks(two_agents, python, "training/optimizer.py", size))


def test_parameters_and_optimizer_state_reach_every_rank(two_agents, python):
    assert_all_ok(run_ranks(two_agents, python, "training/state.py", 3))


def test_alone(python, run_program):
    status, output = run_program([python, str(RANKS / "launch/alone.py")], env=clean_environment())
    assert status == 0 and output.rstrip().endswith("ok"), output


# ---- trouble: every other rank gets one line that says what and who


def reports(results, but=()):
    """The JSON line of every rank that is not in `but`."""
    found = []
    for number, (status, output) in enumerate(results):
        if number not in but:
            assert status == 0, f"rank {number}: {status}\n{output}"
            found.append(json.loads(output.strip().splitlines()[-1]))
    return found


@pytest.mark.parametrize(
    ("mode", "parts"),
    [
        ("other_width", ["grad/f32/0:0.weight..1.bias"]),
        ("other_layers", ["grad/f32/0:layer0.weight..layer"]),
        ("other_dtype", ["loss", "f32", "f64"]),
        ("other_name", ["of"]),
    ],
)
def test_ranks_that_disagree_all_learn_about_what(two_agents, python, mode, parts):
    for report in reports(run_ranks(two_agents, python, "launch/trouble.py", 3, mode)):
        assert report["error"] == "MismatchError" and "GB-O90" in report["text"], report
        assert all(part in report["text"] for part in parts), report
        assert report["seconds"] < 30, report


@pytest.mark.parametrize("mode", ["killed", "killed_with_child"])
def test_death_of_a_rank_is_noticed_in_time(two_agents, python, mode):
    results = run_ranks(two_agents, python, "launch/trouble.py", 4, mode)
    assert results[1][0] == -signal.SIGKILL
    for report in reports(results, but=[1]):
        assert "rank 1" in report["text"] and report["seconds"] < DEATH_S, report


def test_wait_ends_at_its_deadline_and_names_the_tensor(two_agents, python, tmp_path):
    results = run_ranks(two_agents, python, "launch/trouble.py", 2, "late", str(tmp_path / "waited"))
    assert results[1][0] == 0, results[1]
    report = reports(results, but=[1])[0]
    assert report["error"] == "TimeoutError" and "late" in report["text"], report
    assert 0.7 < report["seconds"] < 20, report
    waited = float(re.search(r"waited (\d+\.\d) s", report["text"]).group(1))
    assert 0.7 < waited < report["seconds"] + 0.1, report  # all slices together


def test_ctrl_c_ends_a_wait(two_agents, python):
    ranks = start_ranks(two_agents, python, "launch/trouble.py", 2, "interrupted")
    report = reports([ranks[0].finish(RANK_DEADLINE_S)])[0]
    ranks[1].process.kill()
    assert report["seconds"] < INTERRUPT_S, report


def test_ctrl_c_ends_init(two_agents, python):
    rank = two_agents.start_rank(
        0, 2, program=[python, str(RANKS / "launch/trouble.py"), "interrupted_init"], job="half"
    )
    assert reports([rank.finish(RANK_DEADLINE_S)])[0]["seconds"] < INTERRUPT_S


def test_gradients_are_read_after_shutdown(two_agents, python):
    """The memory of `.grad` lives as long as a view of it."""
    assert_all_ok(run_ranks(two_agents, python, "launch/after_shutdown.py", 2))

"""Schedules change when gradients are sent and waited for, and nothing else: every training equals one process."""

import json
import re
import subprocess

import pytest
import rig as rigs
from conftest import PYTHONS, assert_all_ok, run_ranks

pytestmark = pytest.mark.timeout(300)

GRADBUS = str(rigs.BIN / "gradbus")
SCHEDULES = ["auto", "wfbp", "ddp", "fusion", "bytescheduler:budget=700", "dear", "mg-wfbp", "mergecomp:groups=2"]
IN_FORWARD = ["bytescheduler", "dear"]
PROGRAMS = ["after_backward", "parameters", "sequences", "optimizer", "complex_parameters", "takeover", "unused"]


def defers(python) -> bool:
    """Torch 1 cannot say who else reads a parameter, so steps are made at once."""
    return "debian" not in python


def deferred(results) -> int:
    """Buckets that were stepped when they were used next; every rank counts its own."""
    return min(int(re.findall(r"^deferred (\d+)$", output, re.M)[-1]) for _, output in results)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_schedule_equals_one_process(two_agents, python, schedule):
    assert_all_ok(run_ranks(two_agents, python, "training/schedules.py", 3, schedule))


@pytest.mark.parametrize("words", [["mg-wfbp"], ["mergecomp:groups=2", "onebit"], ["mergecomp"], ["auto"]])
def test_a_plan_of_the_coordinator_equals_one_process(two_agents, python, words):
    assert_all_ok(run_ranks(two_agents, python, "training/planned.py", 3, *words))


@pytest.mark.parametrize("schedule", IN_FORWARD)
def test_late_results_equal_one_process(two_agents, python, schedule):
    results = run_ranks(two_agents, python, "training/deferred.py", 3, "schedules.py", schedule)
    assert_all_ok(results)
    assert deferred(results) > 300 or not defers(python), results[0][1]


def test_what_is_kept_across_steps_is_as_in_one_process(two_agents):
    results = run_ranks(two_agents, str(PYTHONS["newest"]), "training/habits/kept.py", 2)
    assert_all_ok(results)
    assert "put off 0" not in results[0][1], results[0][1]


def test_a_step_that_was_replaced_takes_part(two_agents, python):
    assert_all_ok(run_ranks(two_agents, python, "training/deferred.py", 2, "habits/own_steps.py"))


def test_a_broken_step_is_not_made_twice(two_agents, python):
    assert_all_ok(run_ranks(two_agents, python, "training/deferred.py", 2, "habits/broken_steps.py"))


def test_ddp_that_is_made_later_is_named(two_agents, tmp_path):
    words = [str(PYTHONS["newest"]), "training/habits/ddp_after.py", 2, str(tmp_path / "group")]
    assert_all_ok(run_ranks(two_agents, *words))


def test_one_rank_and_one_node_wait_for_nobody(two_agents, python):
    results = run_ranks(two_agents, python, "training/deferred.py", 1, "schedules.py", "dear")
    assert_all_ok(results)
    assert deferred(results) == 0


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_of_other_tests_with_late_results(two_agents, python, program):
    """Clipping, scaling, several losses, freezing, random programs: as they are, with results that come late."""
    environment = {"GRADBUS_SCHEDULE": "bytescheduler"}
    results = run_ranks(two_agents, python, "training/deferred.py", 3, f"{program}.py", **environment)
    assert_all_ok(results)
    assert deferred(results) > 0 or program == "takeover" or not defers(python), results[0][1]


@pytest.mark.parametrize(
    ("schedule", "size", "place"),
    [("dear", 2, "forward"), ("bytescheduler", 2, "forward"), ("auto", 2, "forward"), ("ddp", 2, "backward"),
     ("dear", 1, "backward")],
)  # fmt: skip
def test_the_report_of_a_schedule_is_what_happens(two_agents, schedule, size, place):
    """With compression, accumulation, delay, clipping, other modes, and on one node."""
    words = [str(PYTHONS["newest"]), "training/habits/reported_waits.py", size, schedule, place]
    assert_all_ok(run_ranks(two_agents, *words))


@pytest.mark.parametrize("schedule", IN_FORWARD)
def test_the_report_of_a_schedule_is_what_happens_with_shards(schedule):
    with rigs.cluster(2, shards=1) as rig:
        words = [str(PYTHONS["newest"]), "training/habits/reported_waits.py", 2, schedule, "shards"]
        assert_all_ok(run_ranks(rig, *words))


@pytest.mark.parametrize("first", [0, 2])
def test_a_rank_may_end_right_after_its_last_step(two_agents, python, first):
    results = run_ranks(two_agents, python, "training/last_step.py", 3, str(first))
    assert_all_ok(results)
    assert len({output.splitlines()[-2] for n, (_, output) in enumerate(results) if n != first}) == 1, results


def test_many_changes_need_no_more_memory(two_agents, python):
    results = run_ranks(two_agents, python, "training/schedule_changes.py", 2)
    assert_all_ok(results)


@pytest.mark.parametrize("budget", [[], ["3000"]])
def test_autotuning_finds_what_is_fast_for_the_slowest_rank(python, tmp_path, budget):
    with rigs.cluster(2) as rig:  # it remembers nothing of this model
        assert_all_ok(run_ranks(rig, python, "training/autotune.py", 3, str(tmp_path / "tune.csv"), *budget))


@pytest.mark.parametrize(("size", "words"), [(1, []), (2, []), (2, ["dear"])])
def test_a_recording_has_the_layers_and_how_they_ran(two_agents, python, tmp_path, size, words):
    recording = tmp_path / "job.json"
    assert_all_ok(run_ranks(two_agents, python, "training/record.py", size, str(recording), *words))
    planned = subprocess.run([GRADBUS, "plan", "--replay", str(recording), "--nodes", "4", "--json"], text=True,
                             capture_output=True, timeout=60, check=True)  # fmt: skip
    assert json.loads(planned.stdout)["layers"] == 6


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["soon"], ["schedule='soon' is unknown", "take one of wfbp, ddp"]),
        (["mergecomp:groups=0"], ["mergecomp:groups=N with N from 1 to 1024"]),
        (["ddp:groups=2"], ["'ddp:groups=2' has an option that there is not"]),
        (["dear:budget=0"], ["'0' is no number of bytes from 1 to 2^40"]),
        (["dear:budget=-4M"], ["'-4M' is no number of bytes"]),
        (["mergecomp:groups=2,budget=many"], ["'many' is no number of bytes"]),
        (["ddp:budget=2000G"], ["'2000G' is no number of bytes"]),
        (["ddp", "delayed:k=1"], ["some parameters are not in mode sync"]),
    ],
)
def test_wrong_schedules_are_refused(two_agents, python, words, parts):
    for status, output in run_ranks(two_agents, python, "training/wrong_schedule.py", 2, *words):
        error = json.loads(output.strip().splitlines()[-1])
        assert status == 0 and error["error"] == "InvalidError", output
        assert all(part in error["text"] for part in parts), error


def run(*words, variable="GRADBUS_SCHEDULE", **options):
    return subprocess.run(
        [GRADBUS, "run", "-np", "1", "--embedded", "--no-prefix", *words, "--", "sh", "-c", f"echo ${variable}"],
        text=True, capture_output=True, timeout=60, check=False, **options,
    )  # fmt: skip


def test_the_launcher_passes_a_schedule_on(tmp_path):
    assert run("--schedule", "dear").stdout == "dear\n"
    assert run("--schedule", "dear:budget=16M").stdout == "dear:budget=16M\n"
    policy = tmp_path / "policy.toml"
    policy.write_text('schedule = "bytescheduler"\n')
    assert run("--policy", str(policy)).stdout == "bytescheduler\n"
    assert run("--autotune", variable="GRADBUS_AUTOTUNE").stdout == "1\n"
    tuned = run("--autotune", "--autotune-log-file", "t.csv", variable="GRADBUS_AUTOTUNE_LOG")
    assert tuned.stdout == "t.csv\n"
    tuned = run("--autotune", "--autotune-steps-per-sample", "7", variable="HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE")
    assert tuned.stdout == "7\n"
    assert run("--record", "job.json", variable="GRADBUS_RECORD", cwd=tmp_path).stdout == f"{tmp_path}/job.json\n"
    for words, part in (
        (["--autotune-log-file", "t.csv"], "--autotune"),
        (["--schedule", "deer"], "did you mean dear?"),
        (["--schedule", "ddp", "--policy", str(policy)], "has a schedule, too"),
        (["--schedule", "dear:budget=0"], '"0" is no number of bytes from 1 to 2^40'),
        (["--schedule", "mergecomp:groups=2,budget=1e6"], '"1e6" is no number of bytes'),
    ):
        refused = run(*words)
        assert refused.returncode != 0 and part in refused.stderr, refused


def test_priorities_are_agreed_on_and_shown(two_agents, python):
    words = [GRADBUS, two_agents.server.ready["address"], str(rigs.TOKEN_FILE)]
    assert_all_ok(run_ranks(two_agents, python, "training/priorities.py", 2, *words))

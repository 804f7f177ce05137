"""`gradbus mode`: jobs that change modes while they run, on real daemons."""

import json
import subprocess
import time

import fork_server
import pytest
import rig as rigs
from conftest import RANKS, assert_all_ok, clean_environment, run_ranks, start_ranks

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def newest():
    return str(rigs.REPOSITORY / ".venv/bin/python")


@pytest.fixture(scope="module")
def three_agents():
    with rigs.cluster(3, shards=2) as running:
        yield running


@pytest.fixture(autouse=True)
def environment(three_agents, monkeypatch):
    """Rank 0 calls the command."""
    monkeypatch.setenv("GRADBUS_BIN", str(rigs.BIN))
    monkeypatch.setenv("GRADBUS_COORDINATOR", three_agents.server.ready["address"])


def gradbus_mode(rig, *words):
    return subprocess.run(
        [rigs.BIN / "gradbus", "mode", *words, "--coordinator", rig.server.ready["address"]],
        capture_output=True, text=True, timeout=60, check=False)  # fmt: skip


def test_no_gradient_is_lost_whatever_changes(three_agents, python):
    assert_all_ok(run_ranks(three_agents, python, "modes/mode_changes.py", 3, "counting"))


@pytest.mark.parametrize("what", ["group", "memory", "squares", "momenta", "lamb", "refused"])
def test_changes(three_agents, newest, what):
    assert_all_ok(run_ranks(three_agents, newest, "modes/mode_changes.py", 3, what))


def test_a_command_changes_a_running_job(three_agents, newest):
    # As `gradbus run --fence-every 4` has it: the script calls no flush().
    ranks = start_ranks(three_agents, newest, "modes/mode_changes.py", 3, "forever", GRADBUS_FENCE_EVERY="4")
    for rank in ranks:
        assert rank.process.stdout.readline().strip() == "steps"
    status = [rigs.BIN / "gradbus", "status", "--coordinator", three_agents.server.ready["address"]]
    jobs = json.loads(subprocess.run([*status, "--json"], capture_output=True, check=False).stdout)["jobs"]
    (job,) = [one["job"] for one in jobs if one["state"] == "running"]

    done = gradbus_mode(three_agents, job, "weight", "delayed:k=2", "--reason", "a test")
    assert done.returncode == 0 and "next fence" in done.stdout, done

    def changed():
        shown = subprocess.run([*status, "--json"], capture_output=True, check=False).stdout
        (one,) = [one for one in json.loads(shown)["jobs"] if one["job"] == job]
        return one if any(tensor["mode"] == "delayed:k=2" for tensor in one["tensors"]) else None

    rigs.wait_until(changed, what="a tensor in the new mode")
    (asked,) = changed()["mode_changes"]
    assert (asked["group"], asked["mode"]) == ("weight", "delayed:k=2") and "a test" in asked["reason"]
    text = subprocess.run(status, capture_output=True, text=True, check=False).stdout
    assert "delayed:k=2 (" in text and '"weight" in mode delayed:k=2' in text, text
    for words, error in (
        ((job, "*", "delaid"), "did you mean"),
        ((job, "*", "ps:quorum,q=9"), "GB-O911"),
        ((job, "", "sync"), "GB-O911"),
        (("nosuchjob", "*", "sync"), "GB-J406"),
    ):
        refused = gradbus_mode(three_agents, *words)
        assert refused.returncode == 1 and error in refused.stderr, (words, refused)
    time.sleep(0.3)  # it goes on in spite of them
    subprocess.run([rigs.BIN / "gradbus", "stop", job, "--coordinator", status[-1]], check=True)
    for rank in ranks:
        assert "ClosedError delayed:k=2" in rank.finish()[1]


@pytest.mark.parametrize("victim", [0, 2])
def test_a_rank_is_killed_while_modes_change(three_agents, newest, victim):
    """The others get PeerLostError, whatever they are about to agree on. The next job trains and changes modes."""
    ranks = start_ranks(three_agents, newest, "modes/mode_changes.py", 3, "forever", GRADBUS_FENCE_EVERY="2")
    for rank in ranks:
        assert rank.process.stdout.readline().strip() == "steps"
    job = three_agents.newest_job()["job"]
    for mode in ("delayed:k=2", "sync", "delayed:k=1"):
        done = gradbus_mode(three_agents, job, "weight", mode)
        assert done.returncode == 0, done
    ranks[victim].process.kill()
    for number, rank in enumerate(ranks):
        _, output = rank.finish()
        assert number == victim or "PeerLostError" in output, (number, output)
    assert all(daemon.alive() for daemon in [*three_agents.agents, *three_agents.shards, three_agents.server])
    assert_all_ok(run_ranks(three_agents, newest, "modes/mode_changes.py", 3, "refused"))


def test_without_shards_their_modes_are_refused(newest):
    with rigs.cluster(1) as rig:
        ranks = start_ranks(rig, newest, "modes/mode_changes.py", 1, "forever")
        assert ranks[0].process.stdout.readline().strip() == "steps"
        jobs = json.loads(subprocess.run(
            [rigs.BIN / "gradbus", "status", "--json", "--coordinator", rig.server.ready["address"]],
            capture_output=True, check=False).stdout)["jobs"]  # fmt: skip
        refused = gradbus_mode(rig, jobs[0]["job"], "*", "ps:sync")
        assert refused.returncode == 1 and "GB-O912 NO_SHARDS" in refused.stderr, refused


# Expect: a job whose last rank is late changes by itself, and says why.
def test_a_rule_changes_the_mode_of_a_job_with_a_late_rank(newest):
    command = [str(rigs.BIN / "gradbus"), "run", "-np", "3", "--agents", "3", "--no-prefix", "--verbose",
               "--late-mode", "delayed:k=1", "--fence-every", "4", "--",
               newest, str(RANKS / "modes/mode_changes.py"), "late"]  # fmt: skip
    done = fork_server.run(command, env=clean_environment(GRADBUS_SERVER_LATE_SECONDS="3"), timeout=150,
                          check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
    assert done.returncode == 0 and done.stdout.count("ok\n") == 3, done.stdout
    assert "changes to mode delayed at the next fence: by rule: ranks lost" in done.stdout, done.stdout
    assert "mostly rank 2" in done.stdout, done.stdout
    wrong = subprocess.run([*command[:9], "delaid", "--", "true"], env=clean_environment(), timeout=60, check=False,
                           capture_output=True, text=True)  # fmt: skip
    assert wrong.returncode == 2 and "did you mean" in wrong.stderr, wrong


# Expect: a loss that is not finite takes a job back to synchronous exchange, and the log says why.
def test_a_rule_takes_a_job_back_to_sync_when_its_loss_breaks(newest):
    command = [str(rigs.BIN / "gradbus"), "run", "-np", "2", "--agents", "2", "--no-prefix", "--verbose",
               "--loss-percent", "200", "--fence-every", "4", "--", newest, str(RANKS / "modes/mode_changes.py"),
               "loses"]  # fmt: skip
    done = fork_server.run(command, env=clean_environment(), timeout=150, check=False, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
    assert done.returncode == 0 and done.stdout.count("ok\n") == 2, done.stdout
    assert "changes to mode sync at the next fence: by rule: a loss is not finite" in done.stdout, done.stdout
    assert done.stdout.count("by rule") == 1, done.stdout

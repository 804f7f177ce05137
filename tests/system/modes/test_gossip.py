"""Gossip and delay compensation on real daemons. Jobs are few, for torch is slow to import: each one
proves several things, and what does not depend on torch is left to the one that is imported sooner."""

import json
import subprocess

import fork_server
import rig as rigs
from conftest import PYTHONS, assert_all_ok, clean_environment, run_ranks

COMPENSATED = ["delayed:k=1,dc=0.04", "delayed:k=3,dc=0.5", "delayed:k=2,dc=2,dc_decay=0.95",
               "delayed:k=8,dc=2,dc_decay=0"]  # fmt: skip


def test_each_step_of_each_rank_is_as_simulated(python, two_agents):
    assert_all_ok(run_ranks(two_agents, python, "modes/gossip.py", 4, "exact"))


# The slow rank needs 1.6 s for its steps, the others 0.6 s and what the machine does besides.
def test_what_training_scripts_do_and_a_slow_rank_that_holds_nobody_up(two_agents):
    results = run_ranks(two_agents, str(PYTHONS["debian"]), "modes/gossip.py", 4, "habits")
    assert_all_ok(results)
    seconds = [float(output.split("seconds ")[1].split()[0]) for _, output in results]
    assert seconds[3] > 1.6
    assert max(seconds[:3]) < 0.75 * seconds[3], seconds


def test_compensated_delays_are_as_simulated(python, two_agents):
    assert_all_ok(run_ranks(two_agents, python, "modes/delayed.py", 2, "compensated", *COMPENSATED))


def test_an_unchanged_script_gossips(tmp_path):
    command = [str(rigs.BIN / "gradbus"), "run", "-np", "2", "--agents", "2", "--no-prefix", "--mode", "gossip",
               "--", str(PYTHONS["debian"]), "examples/digits/train.py", "--epochs", "6"]  # fmt: skip
    done = fork_server.run(command, cwd=rigs.REPOSITORY, env=clean_environment(), timeout=100, check=False,
                          text=True, capture_output=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["ranks_identical"] and result["accuracy"] > 0.9, result
    refused = subprocess.run([*command[:-6], "gossip:topology=star", *command[-5:]], cwd=rigs.REPOSITORY, check=False,
                             env=clean_environment(), timeout=60, text=True, capture_output=True)  # fmt: skip
    assert refused.returncode == 2 and "expected one of random, ring" in refused.stderr, refused.stderr

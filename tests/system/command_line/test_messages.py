"""Wrong values of options: each message names the option, the value and what to do."""

import subprocess

import pytest
import rig as rigs
from conftest import clean_environment

pytestmark = pytest.mark.timeout(240)
GRADBUS, SERVER = "gradbus", "gradbus-server"
PLAN = [GRADBUS, "plan", "--model", "resnet50", "--nodes", "4"]

# mistake: (command, exit status, words of the message)
MISTAKES = {
    "plan without nodes": (PLAN[:4], 2, ["needs the number of nodes", "next: for example: --nodes 16"]),
    "no nodes": ([*PLAN[:4], "--nodes", "0"], 2, ["--nodes", '"0"', "1..1048576", "next: gradbus plan --help"]),
    "buckets below zero": ([*PLAN, "--bucket-bytes", "-1"], 2, ["--bucket-bytes", '"-1"', "whole number in 1.."]),
    "no groups": ([*PLAN, "--groups", "0"], 2, ["--groups", '"0"']),
    "seconds that are a word": ([GRADBUS, "top", "--every", "abc"], 2,
                                ["--every", '"abc" is not a number in 0.1..3600', "next: gradbus top --help"]),
    "no ranks": ([GRADBUS, "bench", "all_reduce", "--ranks", "0"], 2, ["--ranks", '"0"', "for example: --ranks 4"]),
    "no device": ([GRADBUS, "bench", "codec", "--device", "foo"], 2, ["--device", '"foo"', "cuda:1"]),
    "no codec": ([GRADBUS, "bench", "all_reduce", "--codec", "nonsense"], 2, ["GB-O910", '"nonsense"']),
    "a codec with one rank": ([GRADBUS, "run", "-np", "1", "--compression", "nonsense", "--", "true"], 2,
                              ["GB-O910", '"nonsense"']),
    "a missing word": ([GRADBUS, "stop"], 2, ["job", "next: gradbus stop --help"]),
    "nobody there": ([GRADBUS, "status", "--coordinator", "127.0.0.1:1"], 2,
                     ["127.0.0.1:1: Connection refused | next: start gradbus-server"]),
    "another machine's address": ([SERVER, "--listen", "203.0.113.7:7400", "--insecure-i-understand"], 1,
                                  ["203.0.113.7:7400", "next: name an address of this machine"]),
    "another machine's address for metrics": (
        [SERVER, "--listen", "127.0.0.1:0", "--insecure-i-understand", "--metrics-listen", "203.0.113.7:7400"], 1,
        ["203.0.113.7:7400", "next: name an address of this machine"]),
}  # fmt: skip


def run(command):
    return subprocess.run(
        [rigs.BIN / command[0], *command[1:]], env=clean_environment(), capture_output=True, text=True, check=False,
        timeout=rigs.DEADLINE_S)  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_wrong_value_is_named_with_what_to_do(name):
    command, status, words = MISTAKES[name]
    done = run(command)
    line = done.stderr.strip().splitlines()[-1]
    assert done.returncode == status and "GB-" in line and " | next: " in line, done
    assert all(word in line for word in words), line


def test_a_job_that_records_nothing_says_so(tmp_path):
    file = tmp_path / "steps.json"
    done = run([GRADBUS, "run", "-np", "1", "--record", str(file), "--", "true"])
    assert done.returncode == 0 and not file.exists()
    assert str(file) in done.stderr and "nothing was recorded" in done.stderr and " | next: " in done.stderr, done

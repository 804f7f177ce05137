"""What the tests' fork server promises (fork_server.py): a forked rank ends as a process of its own would."""

import pathlib
import signal
import subprocess

import fork_server
import pytest
import rig as rigs
from conftest import PYTHONS, clean_environment

PYTHON = str(PYTHONS["newest"])
PROGRAM = """
import os, signal, sys, time
import torch
print(*sys.argv[1:], os.getcwd(), sys.stdin.read(), os.getpid(), os.environ["COLOR"], flush=True)
{last}
"""
ENDS = {"sys.exit(3)": 3, "os.kill(os.getpid(), signal.SIGKILL)": -signal.SIGKILL, "": 0}


def written(folder, last):
    (folder / "program.py").write_text(PROGRAM.format(last=last))
    return [PYTHON, str(folder / "program.py"), "a", "b c"]


@pytest.mark.parametrize("last", ENDS)
def test_streams_words_and_the_end_are_passed_on(tmp_path, last):
    done = fork_server.run(written(tmp_path, last), env=clean_environment(COLOR="red"), cwd=tmp_path, input="typed",
                           capture_output=True, text=True, timeout=100)  # fmt: skip
    words = done.stdout.split()
    assert (done.returncode, words[:5], words[6]) == (ENDS[last], ["a", "b", "c", str(tmp_path), "typed"], "red"), done


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
def test_the_rank_ends_with_its_launcher(tmp_path, sent):
    environment = clean_environment(COLOR="red")
    command = fork_server.with_forked_rank(written(tmp_path, "time.sleep(600)"), environment)
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, text=True, **streams) as process:
        rank = pathlib.Path("/proc", process.stdout.readline().split()[4])
        assert rank.exists() and rank.name != str(process.pid)
        process.send_signal(sent)
        assert process.wait(rigs.DEADLINE_S) == -sent
        rigs.wait_until(lambda: not rank.exists(), what="the end of the rank")


def test_other_variables_at_the_start_are_not_lost(tmp_path):
    """Python reads them before the program; the server's has begun without."""
    environment = clean_environment(COLOR="red")
    command = fork_server.with_forked_rank(written(tmp_path, "assert sys.flags.verbose == 1"), environment)
    done = subprocess.run(command, env={**environment, "PYTHONVERBOSE": "1"}, stdin=subprocess.DEVNULL, text=True,
                          capture_output=True, timeout=100, check=False)  # fmt: skip
    assert done.returncode == 0 and "import" in done.stderr, (done.stdout, done.stderr[-2000:])

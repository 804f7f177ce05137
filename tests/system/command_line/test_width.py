"""What commands print fits a terminal of 80 columns."""

import re
import subprocess

import pytest
import rig as rigs
from conftest import clean_environment

pytestmark = pytest.mark.timeout(240)
COLUMNS = 80
SHOWN = {
    "all errors": ["explain"], "one error": ["explain", "C501"], "exit codes": ["explain", "--exit-codes"],
    "doctor": ["doctor"], "env": ["env"], "plan": ["plan", "--model", "bert-large", "--nodes", "64"],
    "codecs": ["bench", "codec", "--list"],
    "times of codecs": ["bench", "codec", "topk:ratio=0.01", "efsignsgd", "--elements", "65536", "-n", "1"],
    "times of collectives": ["bench", "all_reduce", "-e", "4K", "-n", "2", "--check"],
    "times of a model": ["bench", "all_reduce", "--model", "resnet50", "-n", "1", "-w", "0"],
}  # fmt: skip


def lines_of(program, *words):
    done = subprocess.run([rigs.BIN / program, *words], env=clean_environment(), capture_output=True, text=True,
                          check=False, timeout=rigs.DEADLINE_S)  # fmt: skip
    assert done.stdout and not done.stderr, done
    return done.stdout.splitlines()


def assert_narrow(lines):
    """Paths of files are not cut."""
    assert [line for line in lines if len(line) > COLUMNS and not re.search(r" /\S{40}", line)] == []


def commands():
    return [words[0] for line in lines_of("gradbus", "--help") if (words := line.split()) and line.startswith("  ")
            and not words[0].startswith("-")]  # fmt: skip


def test_the_help_of_every_command_and_daemon():
    assert len(commands()) > 10
    assert_narrow(lines_of("gradbus", "--help"))
    for command in commands():
        assert_narrow(lines_of("gradbus", command, "--help"))
    for daemon in ("gradbus-agent", "gradbus-server"):
        assert_narrow(lines_of(daemon, "--help"))


def test_the_help_of_run_has_the_options_of_horovodrun_that_do_something():
    text = "\n".join(lines_of("gradbus", "run", "--help"))
    for option in ("-p", "--ssh-port", "-i", "--ssh-identity-file", "--fusion-threshold-mb"):
        assert re.search(rf"^  {option} TEXT +\S", text, re.MULTILINE), option
    assert "--cycle-time-ms" not in text  # does nothing here


@pytest.mark.parametrize("name", SHOWN)
def test_what_commands_show(name):
    assert_narrow(lines_of("gradbus", *SHOWN[name]))

"""The checks of scripts/check.sh that need no build: format, include arrows, sizes, lint, words, prose and the site."""

import subprocess

import pytest
import rig as rigs


@pytest.mark.timeout(300)
def test_fast_checks():
    command = ["scripts/check.sh", "format", "arrows", "sizes", "python", "words", "prose", "site"]
    done = subprocess.run(command, cwd=rigs.REPOSITORY, text=True, timeout=280, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
    assert done.returncode == 0, done.stdout

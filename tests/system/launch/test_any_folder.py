"""A clone may be anywhere: in a home folder that only its owner can read, in a folder with spaces and umlauts."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest
import rig as rigs

TESTS = ["faults/test_bad_input.py::test_no_permission", "launch/test_launchers.py", "security/test_trust.py"]


@pytest.fixture
def clone(tmp_path):
    """A copy of the files that git knows, with the programs that were built."""
    home = tmp_path / "Jörg Müller's home"
    home.mkdir(mode=0o700)
    clone = home / "grad bus"
    files = subprocess.run(["git", "ls-files", "-z"], cwd=rigs.REPOSITORY, capture_output=True, check=True).stdout
    for name in map(os.fsdecode, files.split(b"\0")[:-1]):
        target = clone / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(rigs.REPOSITORY / name, target, follow_symlinks=False)
    return clone


def run(clone: pathlib.Path, *command: object, **variables: str) -> str:
    """What the command prints; it must end well."""
    done = subprocess.run([*map(str, command)], cwd=clone, env={**os.environ, **variables}, timeout=500, check=False,
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.timeout(600)
def test_the_client_library_is_built_there(clone):
    run(clone, "cmake", "--preset", "release")
    run(clone, "ninja", "-C", "build/release", "lib/libgradbus.so")
    assert (clone / "build/release/lib/libgradbus.so").exists()


@pytest.mark.timeout(600)
def test_tests_run_there(clone):
    programs = clone / "build/release"
    programs.mkdir(parents=True)
    shutil.copytree(rigs.BIN, programs / "bin")
    shutil.copytree(rigs.BIN.parent / "lib", programs / "lib", symlinks=True)
    run(clone, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
        *(f"tests/system/{test}" for test in TESTS), GRADBUS_BIN=str(programs / "bin"))


def test_scripts_run_there(clone):
    """Each finds its parts and the repository's root before it answers --help."""
    for script in sorted((clone / "scripts").glob("*.sh")):
        if script.name != "usage.sh":
            assert script.name in run(clone, script, "--help")

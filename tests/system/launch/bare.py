"""Debian's smallest system with Python, made by debootstrap, without build tools."""

import os
import pathlib
import shutil
import subprocess

import pytest
import rig as rigs

ROOT = rigs.REPOSITORY / "build/bare-root"  # stays there for the next time


def fetch(*command):
    """Runs a command that needs the network, which a machine may lack."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode != 0:
        pytest.skip(f"{command[0]} could not fetch packages: {(done.stdout + done.stderr)[-300:]}")


def root() -> pathlib.Path:
    """Its folder, which nobody changes: a test puts a layer in memory over it."""
    if os.geteuid() != 0 or not shutil.which("debootstrap") or not shutil.which("systemd-nspawn"):
        pytest.skip("needs root, debootstrap and systemd-container (scripts/setup.sh)")
    if not ROOT.exists():
        unfinished = ROOT.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        # A mount namespace of its own: /proc does not stay mounted there when the test is killed.
        fetch("unshare", "--mount", "debootstrap", "--variant=minbase", "--include=python3,python3-venv", "bookworm",
              unfinished)  # fmt: skip
        unfinished.rename(ROOT)
    return ROOT

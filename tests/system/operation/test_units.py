"""The units of deploy/systemd: systemd knows every setting, the programs take the words, and it never gives up."""

import configparser
import pathlib
import shutil
import subprocess

import pytest
import rig as rigs

FOLDER = rigs.REPOSITORY / "deploy/systemd"
UNITS = sorted(unit.name for unit in FOLDER.glob("*.service"))

pytestmark = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is missing")


def installed(folder: pathlib.Path, name: str) -> pathlib.Path:
    """The unit with the programs of this build, which may be in a folder with blanks in its name."""
    programs = folder / "programs"
    if not programs.exists():
        programs.symlink_to(rigs.BIN.resolve())
    text = (FOLDER / name).read_text().replace("/usr/bin", str(programs))
    (folder / name).write_text(text)
    return folder / name


def complaints(unit: pathlib.Path) -> str:
    done = subprocess.run(["systemd-analyze", "verify", unit], env={"SYSTEMD_UNIT_PATH": f"{unit.parent}:"},
                          capture_output=True, text=True, timeout=60, check=False)  # fmt: skip
    return done.stdout + done.stderr


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_is_understood(tmp_path, name):
    unit = installed(tmp_path, name)
    assert complaints(unit) == ""
    drop_ins = tmp_path / f"{name}.d"
    drop_ins.mkdir()
    shutil.copy(FOLDER / "rdma.conf", drop_ins)
    assert complaints(unit) == ""
    with (drop_ins / "rdma.conf").open("a") as file:
        file.write("DevicesAllowed=yes\n")
    assert "Unknown key 'DevicesAllowed'" in complaints(unit), "drop-ins are not read"


@pytest.mark.parametrize("name", UNITS)
def test_it_is_started_again_for_ever(name):
    unit = configparser.ConfigParser(strict=False)
    unit.read(FOLDER / name)
    assert (unit["Service"]["Restart"], unit["Unit"]["StartLimitIntervalSec"]) == ("always", "0")


@pytest.mark.parametrize("name", UNITS)
def test_its_program_takes_its_words(tmp_path, name):
    """The settings are missing here, so that is what it says and nothing else."""
    unit = configparser.ConfigParser(strict=False)
    unit.read(installed(tmp_path, name))
    command = unit["Service"]["ExecStart"].split()
    command[-1] = str(tmp_path / "none.toml")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "none.toml: File could not be opened" in done.stderr, done

"""The units of deploy/systemd: systemd knows every setting, the programs take the words, and it never gives up. Their
exposure is at most 2.0 of 10.
"""

import configparser
import pathlib
import re
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
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], env={"SYSTEMD_UNIT_PATH": f"{unit.parent}:"},
                          capture_output=True, text=True, timeout=60, check=False)  # fmt: skip
    return done.stdout + done.stderr


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_is_understood(tmp_path, name):
    unit = installed(tmp_path, name)
    assert complaints(unit) == ""
    drop_ins = tmp_path / f"{name}.d"
    drop_ins.mkdir()
    for drop_in in ("cuda.conf", "rdma.conf"):
        shutil.copy(FOLDER / drop_in, drop_ins)
    assert complaints(unit) == ""
    with (drop_ins / "rdma.conf").open("a") as file:
        file.write("DevicesAllowed=yes\n")
    assert "Unknown key 'DevicesAllowed'" in complaints(unit), "drop-ins are not read"


EXPOSURE_MAX = 2.0


def exposure(unit: pathlib.Path) -> float:
    said = subprocess.run(["systemd-analyze", "security", "--offline=true", "--no-pager", unit], capture_output=True,
                          env={"SYSTEMD_UNIT_PATH": f"{unit.parent}:"}, text=True, timeout=60, check=True)  # fmt: skip
    return float(re.search(rf"Overall exposure level for {unit.name}: ([\d.]+)", said.stdout)[1])


@pytest.mark.parametrize("name", UNITS)
@pytest.mark.parametrize("drop_in", [None, "rdma.conf", "cuda.conf"])
def test_it_allows_little(tmp_path, name, drop_in):
    unit = installed(tmp_path, name)
    if drop_in:
        (tmp_path / f"{name}.d").mkdir()
        shutil.copy(FOLDER / drop_in, tmp_path / f"{name}.d")
    found = exposure(unit)
    print(name, drop_in, found)
    assert found <= EXPOSURE_MAX
    unit.write_text(unit.read_text().replace("CapabilityBoundingSet=\n", ""))
    assert exposure(unit) > EXPOSURE_MAX, "the measure does not see what it should"


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

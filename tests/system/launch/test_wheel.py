"""The wheel of scripts/wheel.sh in a virtual environment without a compiler: install, two ranks, uninstall."""

import os
import pathlib
import subprocess
import sys
import venv

import pytest
import rig as rigs

pytestmark = pytest.mark.timeout(400)
PROGRAM = """
import array, gradbus
gradbus.init()
values = array.array("d", [gradbus.rank() + 1.0])
gradbus.allreduce_(values, op=gradbus.Sum)
print("sum", values[0])
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Made of the release build."""
    if rigs.BIN.parent != rigs.REPOSITORY / "build/release":
        pytest.skip("a wheel is made of the release build")
    folder = tmp_path_factory.mktemp("wheel")
    made = subprocess.run([rigs.REPOSITORY / "scripts/wheel.sh", folder], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    return pathlib.Path(made.stdout.split()[-1])


def test_it_needs_nothing_else(wheel, tmp_path):
    assert wheel.name.endswith("-manylinux_2_36_x86_64.whl") and wheel.stat().st_size < 60 << 20
    venv.create(tmp_path / "venv", with_pip=True)
    scripts = tmp_path / "venv/bin"
    before = sorted(path.relative_to(tmp_path) for path in (tmp_path / "venv").rglob("*"))
    env = {"PATH": str(scripts), "HOME": str(tmp_path), "TMPDIR": os.environ.get("TMPDIR", "/tmp"),
           "PYTHONDONTWRITEBYTECODE": "1"}  # fmt: skip

    def run(*words):
        done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    pip = [str(scripts / "python"), "-m", "pip"]
    run(*pip, "install", "--quiet", "--no-index", "--no-compile", str(wheel))
    version = run("python", "-c", "import gradbus; print(gradbus.__version__)").strip()
    for command in (["gradbus"], ["python", "-m", "gradbus"]):
        assert version in run(*command, "--version")
    (tmp_path / "program.py").write_text(PROGRAM)
    output = run("gradbus", "run", "-np", "2", "--agents", "2", "--embedded", "--", "python", "program.py")
    assert output.count("sum 3.0") == 2, output
    run(*pip, "uninstall", "--quiet", "--yes", "gradbus")
    after = sorted(path.relative_to(tmp_path) for path in (tmp_path / "venv").rglob("*"))
    assert [path for path in after if "__pycache__" not in path.parts] == [
        path for path in before if "__pycache__" not in path.parts
    ]


def test_the_check_finds_a_library_that_is_missing(tmp_path):
    command = "import wheel_tag, pathlib, sys; print(wheel_tag.problems(pathlib.Path(sys.argv[1])))"
    (tmp_path / "program").write_bytes((rigs.BIN / "gradbus-server").read_bytes())
    found = subprocess.run([sys.executable, "-c", command, tmp_path], check=True, capture_output=True, text=True,
                           env={**os.environ, "PYTHONPATH": str(rigs.REPOSITORY / "scripts")}).stdout  # fmt: skip
    assert "which is not in the wheel" in found and "libgrpc" in found, found

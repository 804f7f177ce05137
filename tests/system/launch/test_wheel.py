"""The wheel of scripts/wheel.sh: install, two ranks, uninstall; in a virtual environment and in a bare root."""

import email
import json
import os
import pathlib
import subprocess
import sys
import venv
import zipfile

import bare
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


HERE = pathlib.Path(__file__).parent
NEWER_PYTHONS = sorted(pathlib.Path.home().glob(".pyenv/versions/3.1[2-9].*/bin/python3"))


def made_wheel(folder, python=None):
    """Made of the release build."""
    if rigs.BIN.parent != rigs.REPOSITORY / "build/release":
        pytest.skip("a wheel is made of the release build")
    environment = {**os.environ, "PYTHON": str(python)} if python else None
    made = subprocess.run([rigs.REPOSITORY / "scripts/wheel.sh", folder], capture_output=True, text=True, check=False,
                          env=environment)  # fmt: skip
    assert made.returncode == 0, made.stderr
    return pathlib.Path(made.stdout.split()[-1])


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """For the Python of .venv."""
    return made_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def bare_root():
    return bare.root()


def test_it_has_an_extra_for_each_framework(wheel):
    with zipfile.ZipFile(wheel) as files:
        (name,) = [name for name in files.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = email.message_from_bytes(files.read(name))
    needs = metadata.get_all("Requires-Dist")
    for extra, package in (("torch", "torch"), ("jax", "optax"), ("tensorflow", "tensorflow"), ("mxnet", "mxnet")):
        assert extra in metadata.get_all("Provides-Extra")
        its = [need for need in needs if f"extra == '{extra}'" in need.replace('"', "'")]
        assert any(need.startswith(package) for need in its), needs
    assert all("extra ==" in need for need in needs), needs


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


def test_a_bare_root_installs_trains_and_uninstalls(wheel, bare_root):
    """Nothing of the root changes: it is under a layer in memory."""
    torch = next((rigs.REPOSITORY / ".venv/lib").glob("python3*/site-packages"))
    binds = {wheel.parent: "/wheels", torch: "/torch", rigs.REPOSITORY / "examples": "/examples", HERE: "/steps"}
    command = ["systemd-nspawn", "--quiet", "--volatile=overlay", "--register=no", "--keep-unit", "--private-network",
               "--link-journal=no", "--pipe", *(f"--bind-ro={a}:{b}" for a, b in binds.items())]  # fmt: skip
    command += [f"--directory={bare_root}", "/steps/bare_root.sh"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 0 and done.stdout.rstrip().endswith("nothing is left"), done.stdout + done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [result["world_size"] for result in results] == [2, 2]
    assert all(result["ranks_identical"] and result["accuracy"] > 0.9 for result in results), results


@pytest.mark.skipif(not NEWER_PYTHONS, reason="no CPython 3.12 or newer in ~/.pyenv")
def test_one_wheel_serves_newer_pythons(tmp_path):
    """Made with the oldest of them, used with the newest: CPython's stable ABI."""
    oldest, newest = NEWER_PYTHONS[0], NEWER_PYTHONS[-1]
    bare.fetch(*venv_of(oldest, tmp_path / "builder"), "nanobind", "scikit-build-core", "cmake>=3.26")
    wheel = made_wheel(tmp_path, tmp_path / "builder/bin/python")
    assert "-cp312-abi3-manylinux" in wheel.name
    subprocess.run([*venv_of(newest, tmp_path / "venv"), wheel], check=True, timeout=200)
    (tmp_path / "program.py").write_text(PROGRAM)
    scripts = tmp_path / "venv/bin"
    command = [scripts / "gradbus", "run", "-np", "2", "--embedded", "--", scripts / "python", tmp_path / "program.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and done.stdout.count("sum 3.0") == 2, done.stdout + done.stderr


def venv_of(python, folder):
    """Makes it. Returns the command that installs packages there."""
    subprocess.run([python, "-m", "venv", folder], check=True, timeout=60)
    return [folder / "bin/pip", "install", "--quiet", "--disable-pip-version-check"]


def test_a_wheel_must_keep_to_its_stable_abi(tmp_path):
    command = "import wheel_tag as w, pathlib, sys; print(w.wrong_extensions(pathlib.Path(sys.argv[1]), sys.argv[2]))"
    (tmp_path / "_core.cpython-312-x86_64-linux-gnu.so").write_bytes(b"\x7fELF")
    for name, words in (("gradbus-0.1-cp312-abi3-any.whl", "cmake 3.26"), ("gradbus-0.1-cp312-cp312-any.whl", "[]")):
        environment = {**os.environ, "PYTHONPATH": str(rigs.REPOSITORY / "scripts")}
        found = subprocess.check_output([sys.executable, "-c", command, tmp_path, name], text=True, env=environment)
        assert words in found, found


def test_the_check_finds_a_library_that_is_missing(tmp_path):
    command = "import wheel_tag, pathlib, sys; print(wheel_tag.problems(pathlib.Path(sys.argv[1])))"
    (tmp_path / "program").write_bytes((rigs.BIN / "gradbus-server").read_bytes())
    found = subprocess.run([sys.executable, "-c", command, tmp_path], check=True, capture_output=True, text=True,
                           env={**os.environ, "PYTHONPATH": str(rigs.REPOSITORY / "scripts")}).stdout  # fmt: skip
    assert "which is not in the wheel" in found and "libgrpc" in found, found

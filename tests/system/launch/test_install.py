"""What `cmake --install` puts somewhere is enough for a user's own program: pkg-config, CMake, shared library."""

import os
import pathlib
import subprocess
import sys

import pytest
import rig as rigs

sys.path.insert(0, str(rigs.REPOSITORY / "tests/system/operation/documentation"))
from blocks import blocks_of  # noqa: E402

BLOCKS = blocks_of(rigs.REPOSITORY / "docs/how-to/use-c.md")
PROGRAM, CMAKE = (next(block.code for block in BLOCKS if block.language == language) for language in ("c", "cmake"))
SUMS = ("rank 0 of 2: 3\nrank 1 of 2: 3\n", "rank 1 of 2: 3\nrank 0 of 2: 3\n")


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    """An installation in a folder of its own."""
    folder = tmp_path_factory.mktemp("prefix")
    subprocess.run(["cmake", "--install", rigs.BIN.parent, "--prefix", folder], check=True, capture_output=True)
    return folder


def library_folder(prefix) -> pathlib.Path:
    """Where libgradbus.so went."""
    return next(prefix.rglob("libgradbus.so")).parent


def run_program(program, prefix) -> str:
    env = {**os.environ, "LD_LIBRARY_PATH": str(library_folder(prefix))}
    command = [rigs.BIN / "gradbus", "run", "-np", "2", "--no-prefix", "--", program]
    return subprocess.run(command, env=env, check=True, capture_output=True, text=True, timeout=60).stdout


def test_pkg_config(prefix, tmp_path):
    (tmp_path / "user.c").write_text(PROGRAM)
    env = {**os.environ, "PKG_CONFIG_PATH": str(library_folder(prefix) / "pkgconfig")}
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "gradbus"], env=env, check=True,
                           capture_output=True, text=True).stdout.split()
    subprocess.run(["cc", "-Wall", "-Werror", "-std=c99", "user.c", "-o", "user", *flags], cwd=tmp_path, check=True)
    assert run_program(tmp_path / "user", prefix) in SUMS


def test_cmake_package(prefix, tmp_path):
    (tmp_path / "user.c").write_text(PROGRAM)
    (tmp_path / "CMakeLists.txt").write_text(CMAKE)
    subprocess.run(["cmake", "-B", "build", f"-DCMAKE_PREFIX_PATH={prefix}"], cwd=tmp_path, check=True,
                   capture_output=True)
    subprocess.run(["cmake", "--build", "build"], cwd=tmp_path, check=True, capture_output=True)
    assert run_program(tmp_path / "build/user", prefix) in SUMS


def test_the_library_needs_libc_only_and_shows_the_c_interface_only(prefix):
    library = library_folder(prefix) / "libgradbus.so"
    needed = subprocess.run(["objdump", "-p", library], check=True, capture_output=True, text=True).stdout
    names = [line.split()[1] for line in needed.splitlines() if "NEEDED" in line]
    # libm is a part of libc; reading numbers without regard to the locale needs it.
    allowed = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "libpthread.so.0"}
    assert set(names) <= allowed, names
    symbols = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True)
    shown = [line.split()[2].split("@")[0] for line in symbols.stdout.splitlines()]
    assert [name for name in shown if not name.startswith(("gradbus_", "GRADBUS_"))] == []
    assert "gradbus_allreduce" in shown


def test_the_installed_programs_run(prefix):
    for program in ("gradbus", "gradbus-agent", "gradbus-server"):
        done = subprocess.run([prefix / "bin" / program, "--version"], check=True, capture_output=True, text=True)
        assert "0.1.0" in done.stdout

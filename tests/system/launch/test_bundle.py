"""The folder that scripts/bundle.sh makes, where nothing else is: a root with glibc and the bundle."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tarfile

import pytest
import rig as rigs

pytestmark = pytest.mark.timeout(200)
GLIBC = re.compile(r"^(ld-linux-x86-64|libc|libm|libmvec|libpthread|libdl|librt|libresolv|libutil)\.so")
PACKED_BYTES_MAX = 60 << 20


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """Unpacked somewhere."""
    if rigs.BIN.parent != rigs.REPOSITORY / "build/release":
        pytest.skip("a bundle is made of the release build")
    folder = tmp_path_factory.mktemp("bundle")
    made = subprocess.run([rigs.REPOSITORY / "scripts/bundle.sh", folder], check=True, capture_output=True, text=True)
    archive = pathlib.Path(made.stdout.strip())
    assert archive.stat().st_size < PACKED_BYTES_MAX
    with tarfile.open(archive) as packed:
        packed.extractall(folder)
    return next(folder.glob("gradbus-*/"))


def needed(file) -> dict[str, str]:
    """Library -> where the loader finds it."""
    lines = subprocess.run(["ldd", file], check=True, capture_output=True, text=True).stdout.splitlines()
    return dict(re.findall(r"^\s*(\S+) => (.*?)(?: \(0x|$)", "\n".join(lines), re.MULTILINE))


# Expect: every library but glibc's is found in the bundle, wherever it lies.
def test_it_brings_all_that_it_needs(bundle):
    files = [*(bundle / "bin").iterdir(), *(f for f in (bundle / "lib").iterdir() if ".so" in f.name)]
    names = {file.name for file in files}
    assert {"gradbus", "gradbus-agent", "gradbus-nccl", "gradbus-server", "gradbus-bench-rank"} <= names
    for file in files:
        for library, path in needed(file).items():
            assert GLIBC.match(library) or path.startswith(str(bundle)), (file, library, path)
    assert (bundle / "include/gradbus/gradbus.h").is_file()
    assert len(list((bundle / "licences").iterdir())) > 5


@pytest.mark.skipif(os.geteuid() != 0, reason="chroot needs root")
def test_it_runs_where_nothing_else_is(bundle, tmp_path):
    root = tmp_path / "root"
    libraries = {p for f in (bundle / "bin").iterdir() for name, p in needed(f).items() if GLIBC.match(name)}
    for path in [*libraries, "/lib64/ld-linux-x86-64.so.2"]:
        to = root / path.lstrip("/")
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(os.path.realpath(path), to)
    for folder in ("proc", "tmp", "dev", "etc"):
        (root / folder).mkdir()
    shutil.copytree(bundle, root / "gradbus")
    run = (
        f"mount -t proc proc {root}/proc && mount --bind /dev {root}/dev && "
        f"exec chroot {root} /gradbus/bin/gradbus bench all_reduce --ranks 2 --agents 2 --end 64K --check "
        "--json /tmp/rows.json"
    )
    done = subprocess.run(["unshare", "--mount", "--", "sh", "-c", run], env={"PATH": os.environ["PATH"]},
                          timeout=120, check=False, capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(json.loads((root / "tmp/rows.json").read_text())) > 2

"""What the tests of the Python client share: the two Pythons, one running cluster, and rank programs.

A test starts programs of tests/system/ranks as the ranks of a job; they assert inside, exit with 0 and
print "ok", and the test looks at their status and output. The folders of ranks are those of the tests;
a program that tests of several folders start lies with its subject. Both supported PyTorch generations
run every program: .venv has the newest one, .venv-debian the 1.13 of Debian 12 (scripts/setup.sh makes both).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pathlib
import re
import signal
import subprocess

import fork_server
import pytest
import rig as rigs

PYTHONS = {
    "newest": rigs.REPOSITORY / ".venv/bin/python",
    "debian": rigs.REPOSITORY / ".venv-debian/bin/python",
}
RANKS = pathlib.Path(__file__).parent / "ranks"
# Rank programs import from their own folder and from ranks/common.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(RANKS / "common"), os.environ.get("PYTHONPATH")]))
# Ranks share two cores, and OpenMP's threads spin while they wait for work. `gradbus run` sets a number, too.
os.environ.setdefault("OMP_NUM_THREADS", "1")
LAUNCHER_PREFIXES = (
    "GRADBUS_", "HOROVOD_", "OMPI_", "PMI_", "PMIX_", "SLURM_", "FLUX_", "JSM_", "TORCHELASTIC_",
)  # fmt: skip
LAUNCHER_NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
# What clients and agents of this tree speak (proto/attach.h), for tests that speak it themselves.
ATTACH_VERSION = int(re.search(r"kAttachVersion = (\d+);", (rigs.REPOSITORY / "proto/attach.h").read_text())[1])
RANK_DEADLINE_S = 280  # importing torch eight times on two cores takes 20 s of it

_job_numbers = itertools.count()

# A shell starts background commands with Ctrl-C ignored, nohup with hang-ups ignored, and programs inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="module", params=PYTHONS)
def python(request) -> str:
    """A Python with gradbus and torch."""
    path = PYTHONS[request.param]
    if not path.exists():
        pytest.skip(f"{path} is missing: run scripts/setup.sh")
    return str(path)


@pytest.fixture(scope="module")
def two_agents():
    """A coordinator and two agents for a whole module: jobs do not disturb each other."""
    with rigs.cluster(2) as running:
        yield running


@pytest.fixture
def run_program():
    """Runs a program to its end: (exit status, output)."""

    def run(command, env=None, timeout=RANK_DEADLINE_S):
        done = fork_server.run(
            command, env=env, timeout=timeout, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return done.returncode, done.stdout

    return run


def clean_environment(**variables: str) -> dict[str, str]:
    """This process's environment without any launcher's variables."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(LAUNCHER_PREFIXES) and name not in LAUNCHER_NAMES
    }
    return {**kept, "OMP_NUM_THREADS": "1", **variables}


def start_ranks(rig, python, program, size, *arguments, **variables) -> list[rigs.Rank]:
    """Starts ranks/`program`, such as "modes/gossip.py", as a new job of `size` ranks."""
    job = f"{pathlib.Path(program).stem}-{next(_job_numbers)}"
    command = [python, str(RANKS / program), *arguments]
    return rig.start_job(size, program=command, job=job, env=dict(OMP_NUM_THREADS="1", **variables))


def run_ranks(rig, python, program, size, *arguments, **variables) -> list[tuple[int, str]]:
    """[(exit status, output)] of all ranks of a new job."""
    ranks = start_ranks(rig, python, program, size, *arguments, **variables)
    return [rank.finish(RANK_DEADLINE_S) for rank in ranks]


def assert_all_ok(results) -> None:
    """Every rank ended with 0 and said so."""
    for number, (status, output) in enumerate(results):
        assert status == 0 and output.rstrip().endswith("ok"), f"rank {number}: {status}\n{output}"


@contextlib.contextmanager
def launched(folder, *words, **variables):
    """`gradbus run` with these words and its stderr in folder/errors; ended if it has not."""
    with (folder / "errors").open("w") as errors:
        process = subprocess.Popen(
            [rigs.BIN / "gradbus", "run", *words], stdout=subprocess.PIPE, stderr=errors, text=True,
            env=clean_environment(**variables))  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate()

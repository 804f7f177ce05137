"""Lightning, Accelerate, torchtitan and transformers' Trainer on the backend "gradbus"; JobLogger with real loggers."""

import os

import pytest
import rig as rigs
from conftest import RANKS, clean_environment

pytestmark = pytest.mark.timeout(300)
PYTHON = rigs.REPOSITORY / ".venv-trainers/bin/python3"


@pytest.fixture
def run_ranks(run_program):
    if not PYTHON.exists():
        pytest.skip(f"{PYTHON} is missing: run scripts/setup.sh --frameworks")

    def run(program, *words):
        command = [rigs.BIN / "gradbus", "run", "-np", "2", "--agents", "2", "--no-prefix", "--", PYTHON,
                   RANKS / "frameworks" / program, *words]  # fmt: skip
        environment = clean_environment(PATH=f"{rigs.BIN}:{os.environ['PATH']}", WANDB_MODE="offline")
        status, output = run_program([str(word) for word in command], environment)
        assert status == 0 and output.splitlines().count("ok") == 2, output

    return run


@pytest.mark.parametrize("which", ["lightning", "lightning_optimizer", "accelerate", "transformers"])
def test_trainings_equal_one_process(run_ranks, tmp_path, which):
    run_ranks("trainers.py", tmp_path, which)


def test_torchtitan_equals_one_process(run_ranks, tmp_path):
    if not list(PYTHON.parents[1].glob("lib/python3*/site-packages/torchtitan")):
        pytest.skip("torchtitan is missing: run scripts/setup.sh --frameworks")
    run_ranks("titan.py", tmp_path)


def test_loggers_have_what_the_job_did(run_ranks, tmp_path):
    run_ranks("job_logger.py", tmp_path)

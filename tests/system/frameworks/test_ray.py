"""gradbus.ray.TorchConfig with real Ray Train on a local cluster of 2 and 4 workers."""

import json

import conftest
import numpy as np
import pytest
import rig as rigs

pytestmark = pytest.mark.timeout(600)
PYTHON = rigs.REPOSITORY / ".venv-ray/bin/python3"
DIGITS = str(rigs.REPOSITORY / "examples/digits/train.py")


def test_workers_train_what_one_process_trains(run_program, tmp_path):
    if not PYTHON.exists():
        pytest.skip(f"{PYTHON} is missing: run scripts/setup.sh --frameworks")
    one, two = tmp_path / "one.npz", tmp_path / "two.npz"
    command = [PYTHON, DIGITS, "--epochs", "2", "--save-params", str(one)]
    status, output = run_program(command, conftest.clean_environment())
    assert status == 0, output
    with rigs.cluster(1) as rig:
        command = [PYTHON, str(conftest.RANKS / "frameworks/ray_train.py"), rig.agents[0].ready["socket"], str(two)]
        status, output = run_program(command, conftest.clean_environment())
        assert status == 0 and output.rstrip().endswith("ok"), output
        jobs = [job for job in rig.status()["jobs"] if job["job"].startswith("digits-")]
    assert len({job["job"] for job in jobs if ".dist-" not in job["job"]}) == 2, json.dumps(jobs)
    check_equal(two, one)


def test_the_example_equals_one_process(run_program, tmp_path):
    if not PYTHON.exists():
        pytest.skip(f"{PYTHON} is missing: run scripts/setup.sh --frameworks")
    one = tmp_path / "one.npz"
    alone = [str(conftest.PYTHONS["newest"]), str(rigs.REPOSITORY / "examples/torch_distributed/digits.py")]  # the same
    status, output = run_program([*alone, "--save-params", str(one)], conftest.clean_environment())
    assert status == 0, output
    with rigs.cluster(1) as rig:
        variables = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
        environment = conftest.clean_environment(GRADBUS_SOCKET=rig.agents[0].ready["socket"], **variables)
        for size in (2, 4):
            file = tmp_path / f"{size}.npz"
            command = [PYTHON, str(rigs.REPOSITORY / "examples/ray/digits.py"), "--workers", str(size)]
            status, output = run_program([*command, "--save-params", str(file)], environment)
            assert status == 0, output
            result = json.loads(output.splitlines()[-1])
            assert result["accuracy"] >= 0.96 and result["world_size"] == size and result["ranks_identical"]
            check_equal(file, one)


def check_equal(file, other):
    together, alone = np.load(file), np.load(other)
    for name in alone.files:
        assert np.abs(together[name] - alone[name]).max() <= 1e-5 * np.abs(alone[name]).max(), name

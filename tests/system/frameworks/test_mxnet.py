"""gradbus.mxnet with real MXNet 1.9.1 and NumPy 1.23.5, on ranks of two agents."""

import conftest
import framework_runs
import pytest
import rig as rigs

MXNET = rigs.REPOSITORY / ".venv-mxnet/bin/python3"


@pytest.fixture(autouse=True, scope="module")
def python():
    if not MXNET.exists():
        pytest.skip(f"{MXNET} is missing: run scripts/setup.sh --frameworks")
    return str(MXNET)


@pytest.mark.parametrize("size", [2, 4])
def test_operations_and_trainers(two_agents, python, size):
    conftest.assert_all_ok(conftest.run_ranks(two_agents, python, "frameworks/mxnet_ranks.py", size))


def test_digits_equal_one_process(two_agents, python, tmp_path):
    framework_runs.check_digits(two_agents, "mxnet/digits.py", tmp_path, interpreter=python)


def test_the_policy_of_the_job_compresses(two_agents, python, tmp_path):
    framework_runs.check_policy(two_agents, "mxnet/digits.py", tmp_path, interpreter=python)


# Expect: one line for a Python without MXNet, and for a NumPy that MXNet does not work with.
@pytest.mark.parametrize("module", ["gradbus.mxnet", "gradbus.horovod.mxnet"])
def test_what_is_missing_is_one_line(run_program, tmp_path, module):
    program = f"import importlib\ntry:\n  importlib.import_module('{module}')\nexcept ImportError as e: print(e)"
    command = [framework_runs.python(), "-c", program]
    status, output = run_program(command, env=conftest.clean_environment())
    assert status == 0 and output.count("\n") == 1, output
    assert "pip install mxnet==1.9.1 numpy==1.23.5" in output
    (tmp_path / "mxnet.py").write_text("import numpy\nnumpy.bool_name = numpy.__getattr__('bool_x')\n")
    status, output = run_program(command, env=conftest.clean_environment(PYTHONPATH=str(tmp_path)))
    assert status == 0 and "np.bool, which NumPy 1.24 removed | next: pip install numpy==1.23.5" in output, output

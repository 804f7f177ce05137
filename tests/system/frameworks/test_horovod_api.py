"""gradbus.horovod.torch has the names, arguments and results of horovod.torch 0.28."""

import ast
import os

import pytest
import rig as rigs
from conftest import RANKS, assert_all_ok, clean_environment, run_ranks, start_ranks

pytestmark = pytest.mark.timeout(300)
PACKAGE = rigs.REPOSITORY / "client_lib/python/gradbus/horovod"


@pytest.mark.parametrize("size", [1, 2, 3])
def test_operations(two_agents, python, size):
    assert_all_ok(run_ranks(two_agents, python, "frameworks/hvd/hvd_operations.py", size))


@pytest.mark.parametrize("size", [1, 3])
def test_optimizer(two_agents, python, size):
    assert_all_ok(run_ranks(two_agents, python, "frameworks/hvd/hvd_optimizer.py", size))


@pytest.mark.parametrize("size", [2, 4])
def test_adasum_and_timeline(two_agents, python, tmp_path, size):
    variables = {"GRADBUS_COORDINATOR": two_agents.server.ready["address"], "PATH": f"{rigs.BIN}:{os.environ['PATH']}"}
    words = [str(tmp_path)] if size == 2 else []
    assert_all_ok(run_ranks(two_agents, python, "frameworks/hvd/hvd_adasum.py", size, *words, **variables))


def test_stall_limit_of_horovod(two_agents, python):
    assert_all_ok(run_ranks(two_agents, python, "frameworks/hvd/hvd_variables.py", 2, "stall"))


def test_timeline_of_a_variable(two_agents, python, tmp_path):
    variables = {"GRADBUS_COORDINATOR": two_agents.server.ready["address"], "PATH": f"{rigs.BIN}:{os.environ['PATH']}"}
    words = ["timeline", str(tmp_path / "trace.json")]
    assert_all_ok(run_ranks(two_agents, python, "frameworks/hvd/hvd_variables.py", 2, *words, **variables))


def test_habits_of_scripts(two_agents, python):
    assert_all_ok(run_ranks(two_agents, python, "frameworks/hvd/hvd_habits.py", 2))


def test_spellings_of_horovodrun(run_program, tmp_path):
    (tmp_path / "hosts").write_text("localhost slots=2\n")
    status, output = run_program(
        [str(rigs.BIN / "gradbus"), "run", "--num-proc", "2", "-hostfile", str(tmp_path / "hosts"), "--log-level", "1",
         "--no-stall-check", "--no-prefix", "--", "echo", "hello"],
        env=clean_environment(),
    )  # fmt: skip
    assert status == 0 and output.count("hello\n") == 2 and "--log-level does nothing here" in output, output


def test_run_calls_a_function_on_ranks(python, run_program):
    env = clean_environment(PATH=f"{rigs.BIN}:{os.environ['PATH']}")
    status, output = run_program([python, str(RANKS / "frameworks/hvd/hvd_run.py")], env=env)
    assert status == 0 and output.endswith("ok\n"), output


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_script_for_horovod_trains_as_one_process(two_agents, python, size):
    assert_all_ok(run_ranks(two_agents, python, "frameworks/hvd/hvd_mnist.py", size))


@pytest.mark.parametrize("size", [1, 3])
def test_what_gradbus_cannot_do_is_refused(two_agents, python, size):
    assert_all_ok(run_ranks(two_agents, python, "frameworks/hvd/hvd_refusals.py", size))


@pytest.mark.parametrize("size", [1, 2])
def test_modules_that_scripts_import_from(two_agents, python, size):
    assert_all_ok(run_ranks(two_agents, python, "frameworks/hvd/hvd_modules.py", size))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_batch_normalization_over_all_ranks(two_agents, python, size):
    assert_all_ok(run_ranks(two_agents, python, "frameworks/hvd/hvd_batch_norm.py", size))


@pytest.mark.parametrize("lists", ["all", "reversed", "two", "missing"])
def test_init_with_lists_of_ranks(two_agents, python, lists):
    assert_all_ok(run_ranks(two_agents, python, "frameworks/hvd/hvd_init.py", 4, lists))


def test_elastic_states_without_a_loss(two_agents, python):
    assert_all_ok(run_ranks(two_agents, python, "frameworks/hvd/hvd_elastic.py", 3, "0"))


@pytest.mark.parametrize("size", [1, 3])
def test_elastic_calls_subclasses_and_errors(two_agents, python, size):
    assert_all_ok(run_ranks(two_agents, python, "frameworks/hvd/hvd_elastic_calls.py", size))


def test_elastic_training_survives_the_loss_of_an_agent(python, tmp_path):
    with rigs.cluster(2) as rig:
        program = "frameworks/hvd/hvd_elastic.py"
        ranks = start_ranks(rig, python, program, 4, str(tmp_path), GRADBUS_ELASTIC_TIMEOUT="100")
        rigs.wait_until((tmp_path / "reached").exists, what="the step before the loss")
        rig.agents[0].kill()
        rig.agents[0].process.wait(rigs.DEADLINE_S)
        rig.start_agent("node-0")
        (tmp_path / "go").touch()
        assert_all_ok([rank.finish(200) for rank in ranks])


def test_the_package_needs_no_framework(python, run_program):
    words = "import sys, gradbus.horovod; assert 'torch' not in sys.modules and 'numpy' not in sys.modules; print('ok')"
    assert run_program([python, "-c", words], env=clean_environment()) == (0, "ok\n")


def test_a_script_runs_under_the_launcher(python, run_program):
    command = [rigs.BIN / "gradbus", "run", "-np", "2", "--", python, str(RANKS / "frameworks/hvd/hvd_mnist.py")]
    status, output = run_program([str(word) for word in command], env=clean_environment())
    assert status == 0 and output.count("ok") == 2, output


@pytest.mark.parametrize(
    "module",
    ["torch/__init__", "tensorflow/__init__", "keras/_names", "keras/__init__", "tensorflow/keras/__init__"],
)
def test_all_names_of_the_module_are_exported(module):
    """Both modules of Keras add those of keras/_names.py."""
    tree = ast.parse((PACKAGE / f"{module}.py").read_text())
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    imported = {alias.asname or alias.name for node in imports for alias in node.names} - {"*", "_names"}
    (exported,) = [ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign)]
    assert sorted(imported) == exported

"""Some eighty trainings as people write them, on one agent and on two: each equals one process."""

import shutil

import pytest
import rig as rigs
from conftest import PYTHONS, assert_all_ok, run_ranks


@pytest.mark.parametrize(("agents", "ranks"), [(1, 2), (2, 2), (2, 4)])
def test_trainings_equal_one_process(agents, ranks):
    with rigs.cluster(agents) as rig:
        assert_all_ok(run_ranks(rig, str(PYTHONS["newest"]), "cases/cases.py", ranks))


def test_compiled_trainings_equal_one_process(two_agents):
    """torch.compile, compiled autograd, and autocast."""
    assert_all_ok(run_ranks(two_agents, str(PYTHONS["newest"]), "cases/cases.py", 2, "compiled", "autocast"))


@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs g++")
@pytest.mark.parametrize("case", ["model", "autograd"])
def test_trainings_compiled_by_inductor_equal_one_process(two_agents, tmp_path, case):
    """A model that is compiled after it is wrapped, and compiled autograd. The order is tested with aot_eager."""
    variables = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    assert_all_ok(run_ranks(two_agents, str(PYTHONS["newest"]), "cases/cases.py", 2, f"inductor_{case}", **variables))

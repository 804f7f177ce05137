"""A rank that ends its session while other threads of it are inside calls: tests/system/ending_rank.cc."""

import pytest
import rig as rigs
from conftest import assert_all_ok, run_ranks

CASES = ("wait", "poll", "drain", "reduce", "reduce_large", "begin_many", "register", "process_set", "mode_change",
         "look", "map", "all", "twice", "handles")  # fmt: skip


@pytest.mark.parametrize("agents", [1, 2])
def test_calls_beside_a_shutdown_end_with_its_error(agents):
    with rigs.cluster(agents) as rig:
        ranks = rig.start_job(2, program=[str(rigs.BIN / "ending_rank")])
        status, output = ranks[0].finish()
        assert status == 0, output
        assert [line.removeprefix("ok ") for line in output.splitlines()] == list(CASES)
        status, output = ranks[1].finish()
        assert status == 0, output


@pytest.mark.timeout(120)
def test_waits_of_python_end_with_a_shutdown(two_agents, python):
    assert_all_ok(run_ranks(two_agents, python, "faults/ending.py", 2))

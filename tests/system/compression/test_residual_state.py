"""Checkpoints of what compression remembers, the gate and the fidelity gauge, on real daemons."""

import json
import subprocess

import pytest
import rig as rigs
from conftest import assert_all_ok, run_ranks, start_ranks

pytestmark = pytest.mark.timeout(200)


def test_memories_move_to_another_number_of_ranks(python, tmp_path):
    with rigs.cluster(2) as rig:
        assert_all_ok(run_ranks(rig, python, "compression/residual_state.py", 4, "save", str(tmp_path)))
    for agents, ranks in ((1, 2), (3, 3)):
        with rigs.cluster(agents) as rig:
            assert_all_ok(
                run_ranks(rig, python, "compression/residual_state.py", ranks, "load", str(tmp_path), "4")
            )


# Expect: as dense as before, with two ranks on one of the nodes.
def test_a_warm_up_goes_on_after_new_buckets_and_checkpoints(python):
    with rigs.cluster(2) as rig:
        assert_all_ok(run_ranks(rig, python, "compression/residual_state.py", 3, "warm_up"))


def test_the_gate_names_rank_tensor_and_element(python):
    with rigs.cluster(2) as rig:
        results = run_ranks(rig, python, "compression/compression_gate.py", 4, "onebit:nan=stop")
        for status, output in results:
            assert status == 0 and "GB-O901" in output, output
            assert 'tensor "grad": element 777 of rank 2' in output and "nan" in output


def test_the_gauge_shows_in_status(python, tmp_path):
    with rigs.cluster(2) as rig:
        spec = "topk:ratio=0.1,fidelity=2"
        ranks = start_ranks(rig, python, "compression/compression_gauge.py", 2, spec, str(tmp_path / "seen"))
        command = [rigs.BIN / "gradbus", "status", "--coordinator", rig.server.ready["address"]]

        def status(*options):
            done = subprocess.run([*map(str, command), *options], timeout=60, check=False, text=True,
                                  capture_output=True)  # fmt: skip
            return done.stdout

        def measured():
            jobs = json.loads(status("--json"))["jobs"]
            return [sample for job in jobs for sample in job["fidelity"] if sample["round"] >= 4]

        rigs.wait_until(measured, what="a sample of the gauge")
        sample = measured()[0]
        assert sample["tensor"] == "grad"
        # What they mean is checked exactly in engine_memory_test.cc.
        assert 0.2 < sample["cosine"] < 1
        assert 0.3 < sample["relative_error"] < 3
        assert 0.5 < sample["residual_ratio"] < 10
        assert "COMPRESSED TENSOR" in status()
        (tmp_path / "seen").touch()
        assert_all_ok([rank.finish() for rank in ranks])

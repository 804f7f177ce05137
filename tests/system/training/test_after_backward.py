"""Gradients are the result when backward() returns, and replicas that differ are found in the first step."""

import json
import re

import pytest
from conftest import assert_all_ok, run_ranks

pytestmark = pytest.mark.timeout(240)


@pytest.mark.parametrize("size", [1, 3])
def test_gradients_are_the_result_after_backward(two_agents, python, size):
    assert_all_ok(run_ranks(two_agents, python, "training/after_backward.py", size))


def reports(results):
    """The last JSON line of every rank."""
    for number, (status, output) in enumerate(results):
        assert status == 0, f"rank {number}: {status}\n{output}"
    return [json.loads(output.strip().splitlines()[-1]) for _, output in results]


@pytest.mark.parametrize(
    ("mode", "parts"),
    [
        ("forgotten", ["'0.weight' (and 3 more)", "ranks 1, 2 differ from rank 0", "broadcast=True"]),
        ("one_bit", ["'2.weight' is not", "rank 1 differs from rank 0"]),
        ("drifting", ["'2.bias' is not", "rank 1 differs from rank 0", "after 6 steps"]),
        ("in_a_set", ["rank 2 differs from rank 1", "root_rank=1"]),
    ],
)
def test_replicas_that_differ_are_named(two_agents, python, mode, parts):
    results = reports(run_ranks(two_agents, python, "training/unequal.py", 3, mode))
    for report in results[1:] if mode == "in_a_set" else results:
        assert report["error"] == "MismatchError" and "GB-O906" in report["text"], report
        assert "gradbus.broadcast_parameters(model, root_rank=" in report["text"], report
        assert all(part in report["text"] for part in parts), report
        assert report["seconds"] < 30, report
    assert len({report["text"] for report in results[1:]}) == 1, results


def test_replicas_may_differ_where_modes_let_them(two_agents, python):
    assert_all_ok(run_ranks(two_agents, python, "training/unequal.py", 3, "equal"))


def test_other_numbers_of_passes_are_an_error(two_agents, python):
    for report in reports(run_ranks(two_agents, python, "training/unequal.py", 3, "fewer_passes")):
        assert report["error"] == "MismatchError" and report["seconds"] < 30, report


@pytest.mark.parametrize("order", ["before", "after"])
def test_a_model_that_ddp_averages_is_refused(two_agents, python, order, tmp_path):
    results = run_ranks(
        two_agents, python, "training/unequal.py", 2, "averaged_twice", str(tmp_path / "group"), order,
        GLOO_SOCKET_IFNAME="lo",
    )  # fmt: skip
    for report in reports(results):
        assert report["error"] == "InvalidError" and "GB-O900" in report["text"], report
        assert "DistributedDataParallel" in report["text"] and "0.weight'" in report["text"], report


def test_bytes_that_changed_under_their_checksum_are_no_damage_on_the_wire(two_agents, python):
    found = reports(run_ranks(two_agents, python, "training/scribbler.py", 2))
    assert any("GB-D612 PAYLOAD_CHANGED" in report["text"] for report in found), found
    for report in found:
        assert report["error"] in ("CorruptError", "PeerLostError"), found
        assert "network card" not in report["text"], found
        if "GB-D612" in report["text"]:
            assert report["text"].count("GB-") == report["text"].count("| next: ") == 1, found
            assert "wait before you change a tensor" in report["text"], found
            nodes = r'link from node "\S+" \(rank [01]\) to node "\S+" \(rank [01]\) ended'
            assert re.search(nodes, report["text"]), found
            assert re.search(r'tensor "[^"]+" changed while round', report["text"]), found

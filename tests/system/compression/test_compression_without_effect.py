"""Compression that cannot apply is said once per job, by rank 0."""

import json

import pytest
from conftest import run_ranks

pytestmark = pytest.mark.timeout(240)


def warnings_of(results):
    for status, output in results:
        assert status == 0, output
    return [json.loads(output.strip().splitlines()[-1]) for _, output in results]


def test_what_is_not_compressed_is_reported_once(two_agents, python):
    first, *others = warnings_of(run_ranks(two_agents, python, "compression/no_effect.py", 3))
    assert all(not any(other.values()) for other in others), others
    assert first["none"] == [] and first["applies"] == [], first
    assert first["half"] == [], "its bias is small, in whatever type"
    assert len(first["float64"]) == len(first["small"]) == len(first["twice"]) == 1, first
    # The biases would stay dense in float32, too.
    assert "3 of 4 parameters: 1 is float64" in first["float64"][0], first
    assert "2 have one dimension or fewer than 16,384 elements" in first["float64"][0], first
    assert "2 of 2 parameters: 2 have one dimension or fewer than 16,384" in first["small"][0], first


def test_one_node_and_one_rank_are_reported(two_agents, python):
    (alone,) = warnings_of(run_ranks(two_agents, python, "compression/no_effect.py", 1))
    assert len(alone["applies"]) == 1 and "the job has one rank" in alone["applies"][0], alone
    assert alone["none"] == [], alone


def test_a_policy_that_cannot_apply_is_reported(two_agents, python):
    results = run_ranks(two_agents, python, "compression/no_effect.py", 2, GRADBUS_COMPRESSION="fp16")
    first, _ = warnings_of(results)
    assert len(first["none"]) <= 1 and len(first["float64"]) == 1, first

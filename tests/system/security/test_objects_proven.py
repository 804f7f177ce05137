"""Python objects between ranks are unpickled only when the job's secret proves where they come from."""

from __future__ import annotations

from conftest import assert_all_ok, run_ranks


def test_objects_without_proof_are_not_unpickled(two_agents, python):
    """Raw pickles, wrong proofs and nothing at all: one error each, no code runs, the job goes on."""
    assert_all_ok(run_ranks(two_agents, python, "security/unproven.py", 3))

"""Signals that daemons get: which end them, and which do not."""

import signal
import time

import pytest
import rig as rigs


@pytest.mark.parametrize("role", ["agent", "coordinator", "shard"])
def test_a_hangup_does_not_end_a_daemon(role):
    """SIGHUP comes when a terminal closes: the job goes on."""
    with rigs.cluster(1, shards=1) as rig:
        ranks = rig.start_job(2, "red:x:1000:i64:sum", "sleep:0.5", "red:x:1000:i64:sum")
        rig.wait_for_rank(0)
        daemon = {"agent": rig.agents[0], "coordinator": rig.server, "shard": rig.shards[0]}[role]
        for _ in range(3):
            daemon.kill(signal.SIGHUP)
            time.sleep(0.05)
        assert [rank.finish()[0] for rank in ranks] == [0, 0]
        assert daemon.alive()

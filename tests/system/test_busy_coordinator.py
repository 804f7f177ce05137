"""A coordinator that stands still: healthy agents keep their leases and jobs go on."""

from __future__ import annotations

import contextlib
import pathlib
import signal
import tempfile
import time

import pytest
import rig as rigs

LEASE_MS = 1500

pytestmark = pytest.mark.timeout(300)


@contextlib.contextmanager
def cluster():
    """Two agents and a coordinator with the default lease."""
    with tempfile.TemporaryDirectory(prefix="gradbus-test-") as folder:
        rig = rigs.Rig(pathlib.Path(folder))
        try:
            rig.server = rig.start_daemon("gradbus-server", "--listen", "127.0.0.1:0", "--lease-ms", str(LEASE_MS))
            for index in range(2):
                rig.start_agent(f"node-{index}")
            yield rig
        finally:
            rig.stop()


@contextlib.contextmanager
def job(rig):
    """A job over both agents that is to go on; afterwards it registers something new and ends well."""
    end = rig.folder / "end"
    ranks = rig.start_job(4, "steps:x:1000:3", f"touch:{rig.folder}/begun", f"await:{end}", "steps:x:1000:3",
                          "steps:new:1000:3")
    rigs.wait_until((rig.folder / "begun").exists)
    rig.wait_for_rank(3)
    yield ranks
    for rank in ranks:
        assert rank.process.poll() is None, rank.finish()
    end.touch()
    for rank in ranks:
        status, out = rank.finish()
        assert status == 0, out
    for daemon in [rig.server, *rig.agents]:
        assert "lease has ended" not in daemon.text() and "lost agent" not in daemon.text(), daemon.text()[-3000:]


@pytest.mark.parametrize("seconds", [3])
def test_a_coordinator_that_stands_still(seconds):
    """Longer than the lease."""
    with cluster() as rig, job(rig):
        rig.server.kill(signal.SIGSTOP)
        time.sleep(seconds)
        rig.server.kill(signal.SIGCONT)
        rigs.wait_until(lambda: "stood still for" in rig.server.text())
        time.sleep(2 * LEASE_MS / 1000)
        assert [agent["name"] for agent in rig.status()["agents"]] == ["node-0", "node-1"]

"""Daemons that run out of descriptors in the middle of jobs: these go on, new ones are refused, and both say why."""

import os
import re
import resource

import pytest
import rig as rigs

# Of a rank that is turned away, of those that wait for it, and of a node without memory for the job.
ERRORS = r"error \d (node-0: )?(job \"\w+\": )?GB-(J404|S220) "


def set_limit(daemon, spare: int) -> None:
    """The soft limit of open files of a running daemon: about as many as it has."""
    _, hard = resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE)
    most = max(map(int, os.listdir(f"/proc/{daemon.pid}/fd"))) + 1 + spare
    resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (most, hard))


def refused_on_the_other_node(rig, number: int) -> bool:
    """Starts a job that the full agent refuses. Whether a rank of the other node was told the reason."""
    ranks = rig.start_job(4, "barrier", job=f"new{number}", env={"GRADBUS_START_TIMEOUT": "3"})
    results = [rank.finish() for rank in ranks]
    assert all(status == 3 and re.match(ERRORS, output) for status, output in results), results
    return all(re.match(r'error 9 node-0: job "\w+": GB-S220 NO_DESCRIPTORS', output) for _, output in results[2:])


@pytest.mark.parametrize("which", ["agent", "coordinator"])
def test_none_are_left(which):
    """A job that registers tensors meanwhile stays exact, and all works again when there are some."""
    with rigs.cluster(2) as rig:
        daemon = rig.agents[0] if which == "agent" else rig.server
        running = rig.start_job(2, "churn:x:50000:100", job="running")
        rig.wait_until_running("running")
        set_limit(daemon, 0)
        rigs.wait_until(lambda: "GB-S220 NO_DESCRIPTORS: this daemon has used nearly all" in daemon.text(),
                        what="the daemon's warning")
        for number in range(10 if which == "agent" else 0):  # enough for the ranks' sockets, not for the job
            set_limit(daemon, number)
            if refused_on_the_other_node(rig, number):
                break
        else:
            assert which == "coordinator"
        assert [rank.process.poll() for rank in running] == [None, None], running[0].finish()
        set_limit(daemon, 500)
        rigs.wait_until(lambda: rig.status().get("jobs"), what="the coordinator's answer")
        assert [rank.finish()[0] for rank in rig.start_job(4, "red:z:1000:i64:sum", job="after")] == [0] * 4


def test_memory_beyond_the_limit_of_file_sizes():
    """`ulimit -f` counts for shared memory, too. The kernel's signal ends nobody."""
    with rigs.cluster(1) as rig:
        resource.prlimit(rig.agents[0].pid, resource.RLIMIT_FSIZE, (4_000_000, 4_000_000))
        status, output = rig.start_job(1, "red:x:3000000:f32:sum", job="large")[0].finish()
        assert status == 3 and "GB-S201" in output and "ulimit -f" in output, output
        assert [rank.finish()[0] for rank in rig.start_job(2, "red:z:1000:i64:sum", job="small")] == [0] * 2
        assert rig.agents[0].alive()

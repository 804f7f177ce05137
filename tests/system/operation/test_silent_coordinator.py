"""A coordinator that does not answer is told from one that is not there."""

import re
import signal
import socket
import subprocess

import rig as rigs

DEADLINE_S = 120.0


def test_a_stopped_coordinator_is_told_from_none():
    """A pause of seconds is waited for. A long one is reported as a coordinator that does not answer."""
    with rigs.cluster(1) as rig:
        command = [rigs.BIN / "gradbus", "status", "--coordinator", rig.server.ready["address"]]
        rig.server.kill(signal.SIGSTOP)
        asking = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            asking.wait(timeout=4)
            raise AssertionError(f"did not wait: {asking.stdout.read()}")
        except subprocess.TimeoutExpired:
            rig.server.kill(signal.SIGCONT)
        assert "node-0" in asking.communicate(timeout=DEADLINE_S)[0] and asking.returncode == 0
        rig.server.kill(signal.SIGSTOP)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            commands = [command, [*command[:-1], f"127.0.0.1:{silent.getsockname()[1]}"]]
            asking = [subprocess.Popen(one, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
                      for one in commands]  # fmt: skip
            said = [one.communicate(timeout=DEADLINE_S)[1] for one in asking]
        rig.server.kill(signal.SIGCONT)
        assert [one.returncode for one in asking] == [2, 2], said
        expected = (r"GB-C501 COORDINATOR_LOST: the coordinator at \S+ has not answered for 15 s \| next: it is "
                    r"stopped, overloaded or unreachable.*\n")  # fmt: skip
        assert all(re.fullmatch(expected, text) for text in said), said


def test_the_coordinator_is_named_by_a_rank_that_waits_for_its_start():
    """It stands still for longer than the start timeout, so nobody says that a rank is missing."""
    with rigs.cluster(1) as rig:
        rank = rig.start_rank(0, 2, "red:x:10:i64:sum", env={"GRADBUS_START_TIMEOUT": "3"})
        rig.wait_for_rank(0)
        rig.server.kill(signal.SIGSTOP)
        status, output = rank.finish()
        rig.server.kill(signal.SIGCONT)
        assert status != 0 and re.search(
            r"GB-J404 START_TIMEOUT: the coordinator at \S+ has neither started job \"job\" nor refused rank 0", output
        ), output
        rigs.wait_until(lambda: not rig.status()["jobs"] or rig.newest_job()["state"] != "joining", what="its end")

"""Variables GRADBUS_... that nothing reads: one line for each, from the first program that sees it."""

import re
import subprocess

import conftest
import rig as rigs

DEADLINE_S = 120.0
# Known, or made by Kubernetes for services called gradbus, gradbus-coordinator and gradbus-agent.
QUIET = {
    "GRADBUS_BIN": "/somewhere",
    "GRADBUS_CUDA_DOUBLE": "2",
    "GRADBUS_AUTOTUNE_WARMUP_SAMPLES": "2",
    "GRADBUS_AGENT_NCCL_TIMEOUT_MS": "1000",
    "GRADBUS_AGENT_STREAMS": "1",
    "GRADBUS_SERVER_LEASE_MS": "20000",
    "GRADBUS_SERVICE_HOST": "10.0.0.1",
    "GRADBUS_PORT": "tcp://10.0.0.1:7400",
    "GRADBUS_COORDINATOR_SERVICE_PORT_GRPC": "7400",
    "GRADBUS_COORDINATOR_PORT_7400_TCP_ADDR": "10.0.0.1",
    "GRADBUS_AGENT_PORT": "tcp://10.0.0.2:7401",
}
WRONG = {"GRADBUS_COORDINATR": "127.0.0.1:1", "GRADBUS_AGENT_STREEMS": "4", "GRADBUS_OF_MINE": "\x1b[31m"}


def reported(text: str) -> dict[str, str]:
    """{variable: line}, each reported once."""
    lines = [line for line in text.splitlines() if "GB-F105 " in line]
    found = {re.search(r"the variable (GRADBUS_\w+)", line)[1]: line for line in lines}
    assert len(lines) == len(found), text
    return found


def test_a_run_reports_each_once(tmp_path):
    """The command does; its daemons and ranks do not again. What is known or somebody else's is not reported."""
    environment = conftest.clean_environment(TMPDIR=str(tmp_path), **QUIET, **WRONG)
    command = [rigs.BIN / "gradbus", "run", "-np", "2", "--embedded", "-v", "--", rigs.BIN / "scripted_rank", "barrier"]
    done = subprocess.run(command, env=environment, text=True, capture_output=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0 and done.stdout.count("ok barrier") == 2, done.stdout + done.stderr
    lines = reported(done.stdout + done.stderr)
    assert lines.keys() == WRONG.keys(), lines
    assert "did you mean GRADBUS_COORDINATOR?" in lines["GRADBUS_COORDINATR"]
    assert "did you mean GRADBUS_AGENT_STREAMS?" in lines["GRADBUS_AGENT_STREEMS"]
    assert "did you mean" not in lines["GRADBUS_OF_MINE"] and "environment.md" in lines["GRADBUS_OF_MINE"]


def test_other_launchers_and_commands():
    """Rank 0 reports it for a job. So do a daemon and a command, and a rank that cannot start."""
    with rigs.cluster(1) as rig:
        ranks = rig.start_job(2, "barrier", env=WRONG)
        outputs = [rank.finish() for rank in ranks]
        assert [status for status, _ in outputs] == [0, 0], outputs
        assert [sorted(reported(text)) for _, text in outputs] == [sorted(WRONG), []]
    environment = conftest.clean_environment(GRADBUS_RNAK="0", GRADBUS_SIZE="2")
    for command, status in (["scripted_rank", "barrier"], 3), (["gradbus", "explain", "F105"], 0):
        done = subprocess.run([rigs.BIN / command[0], *command[1:]], env=environment, text=True, capture_output=True,
                              timeout=DEADLINE_S, check=False)
        assert done.returncode == status, done
        assert "did you mean GRADBUS_RANK?" in reported(done.stderr)["GRADBUS_RNAK"]


def test_a_daemon_reports_its_options(monkeypatch):
    """In its log, once, and it works."""
    monkeypatch.setenv("GRADBUS_SERVER_LEASE", "1")
    with rigs.cluster(1) as rig:
        for daemon in rig.server, rig.agents[0]:
            lines = reported(daemon.text())
            assert list(lines) == ["GRADBUS_SERVER_LEASE"]
            assert "did you mean GRADBUS_SERVER_LEASE_MS?" in lines["GRADBUS_SERVER_LEASE"]


def test_many_are_summed_up():
    """A wrong script may set hundreds."""
    environment = conftest.clean_environment(**{f"GRADBUS_MINE_{number}": "1" for number in range(300)})
    done = subprocess.run([rigs.BIN / "gradbus", "explain", "F105"], env=environment, text=True, capture_output=True,
                          timeout=DEADLINE_S, check=False)
    assert done.returncode == 0 and done.stderr.count("GB-F105 ") == 9 and "292 more variables" in done.stderr

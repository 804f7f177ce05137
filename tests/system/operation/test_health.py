"""`gradbus status`: the cluster's health is one thing, how jobs have ended is another."""

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import time

import pytest
import rig as rigs

GRADBUS = str(rigs.BIN / "gradbus")
DEADLINE_S = 30.0


@pytest.fixture
def rig():
    """Two agents and their coordinator."""
    with rigs.cluster(2) as running:
        yield running


def gradbus(rig, *words):
    """A command that asks this rig's coordinator."""
    address = rig.server.ready["address"]
    return subprocess.run([GRADBUS, *words, "--coordinator", address], text=True, capture_output=True, check=False,
                          timeout=DEADLINE_S)


def status_when(rig, condition, what):
    """The first status of which `condition` is true."""
    found = {}

    def ready():
        found.clear()
        found.update(rig.status())
        return condition(found)

    rigs.wait_until(ready, what=what)
    return found


def start_loop(rig, size=2, job="job"):
    """A job that runs until somebody ends it."""
    ranks = rig.start_job(size, "loop:grad:50000:600", job=job)
    status_when(rig, lambda status: any(rank["operations"] > 0 for one in status["jobs"] if one["job"] == job
                                        for rank in one["ranks"]), "the loop")
    return ranks


def test_a_killed_idle_node_is_a_problem_until_it_returns(rig):
    assert gradbus(rig, "status").returncode == 0
    rig.agents[1].kill()
    status = status_when(rig, lambda status: status["lost_nodes"], "the loss")
    assert [node["name"] for node in status["lost_nodes"]] == ["node-1"] and not status["healthy"]
    done = gradbus(rig, "status")
    assert done.returncode == 1
    assert "1 PROBLEM" in done.stdout and "node node-1 is lost for" in done.stdout, done.stdout
    assert "--forget node-1" in re.sub(r"\s+", " ", done.stdout)
    rig.agents[1].process.wait()
    rig.start_agent("node-1")
    assert gradbus(rig, "status").returncode == 0


def test_a_lost_node_can_be_forgotten(rig):
    rig.agents[1].kill()
    status_when(rig, lambda status: status["lost_nodes"], "the loss")
    wrong = gradbus(rig, "status", "--forget", "node-7")
    assert wrong.returncode == 1 and "GB-C505 NO_SUCH_NODE" in wrong.stderr
    assert gradbus(rig, "status", "--forget", "node-1").returncode == 0
    user = rf"\(uid {os.getuid()}\) on .+"
    for name, result in (("node-7", "refused, GB-C505"), ("node-1", "done")):
        assert re.search(rf'forgetting node "{name}" asked by .*{user}: {result}', rig.server.text()), rig.server.text()
    done = gradbus(rig, "status")
    assert done.returncode == 0 and "healthy" in done.stdout, done.stdout


def test_a_node_that_is_stopped_on_purpose_is_not_lost(rig):
    rig.agents[1].kill(signal.SIGTERM)
    rig.agents[1].process.wait(DEADLINE_S)
    status = status_when(rig, lambda status: len(status["agents"]) == 1, "the end")
    assert status["lost_nodes"] == [] and status["healthy"]


def test_a_job_that_was_stopped_leaves_a_healthy_cluster(rig):
    ranks = start_loop(rig)
    assert gradbus(rig, "stop", "job", "--reason", "make room").returncode == 0
    for rank in ranks:
        assert rank.finish()[0] == 3
    done = gradbus(rig, "status")
    assert done.returncode == 0 and "healthy" in done.stdout, done.stdout
    assert re.search(r"job: stopped [\d.]+ m?s ago, 2 ranks", done.stdout), done.stdout
    assert "make room" in re.sub(r"\s+", " ", done.stdout)
    assert "kB/s" not in done.stdout and "joined" not in done.stdout, done.stdout
    assert gradbus(rig, "status", "--job", "job").returncode == 0


def test_a_rank_that_died_fails_its_job_and_not_the_cluster(rig):
    ranks = start_loop(rig)
    ranks[1].process.kill()
    ranks[0].finish()
    done = gradbus(rig, "status")
    assert done.returncode == 0 and re.search(r"job: failed [\d.]+ m?s ago", done.stdout), done.stdout
    assert "GB-P101" in done.stdout
    of_job = gradbus(rig, "status", "--job", "job")
    assert of_job.returncode == 1
    rows = {line.split()[0]: line.split() for line in of_job.stdout.splitlines() if re.match(r" +\d+ +node-", line)}
    assert rows["1"][3] == "lost" and rows["0"][3] in ("ended", "left"), of_job.stdout
    assert rows["1"][5] == rows["0"][5] == "-", "no rate of a rank that has ended"


def test_a_job_that_finished_is_history(rig):
    for rank in rig.start_job(2, "red:x:1000:i64:sum"):
        assert rank.finish()[0] == 0
    done = gradbus(rig, "status")
    assert done.returncode == 0 and "job: finished" in done.stdout, done.stdout


def test_the_slow_rank_is_marked(rig):
    steps = ["steps:grad:1000:1", *["sleep:0.3", "steps:grad:1000:1"] * 100]
    fast = ["steps:grad:1000:1", *["steps:grad:1000:1"] * 100]
    rig.start_rank(0, 2, *fast)
    rig.start_rank(1, 2, *steps)
    status = status_when(rig, lambda status: any(rank["slow"] for job in status["jobs"] for rank in job["ranks"]),
                         "a slow rank")
    ranks = {rank["rank"]: rank for rank in status["jobs"][0]["ranks"]}
    assert ranks[1]["slow"] and not ranks[0]["slow"] and ranks[0]["waiting"] > 0.5, ranks
    # A sleep of 0.3 s a step: at most 3.3 steps a second, however the reports fall.
    assert 0 < ranks[1]["operations_per_s"] <= 3.6, ranks
    text = gradbus(rig, "status").stdout
    assert "slow: rank 1 (node-1, pid" in text, text


@contextlib.contextmanager
def terminal(words, rows, columns=80):
    """A command on a terminal of this size; yields its output's descriptor."""
    child, fd = pty.fork()
    if child == 0:
        os.execv(words[0], words)
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    try:
        yield fd
    finally:
        os.kill(child, signal.SIGINT)
        os.waitpid(child, 0)
        os.close(fd)


def test_watch_fits_the_terminal(rig):
    start_loop(rig, size=12)
    rows = 16
    with terminal([GRADBUS, "status", "--watch", "--coordinator", rig.server.ready["address"]], rows) as fd:
        text, until = b"", time.monotonic() + DEADLINE_S
        while text.count(b"\x1b[2J") < 4 and time.monotonic() < until:
            text += os.read(fd, 65536)
    pages = text.split(b"\x1b[2J")[2:-1]  # the size is set just after the start
    assert pages
    for page in (page.decode() for page in pages):
        lines = page.replace("\r\n", "\n").removesuffix("\x1b[H").rstrip("\n").split("\n")
        assert len(lines) < rows, page
        assert lines[0].startswith("coordinator ") and "job job: running" in page and "more lines of ranks" in page


def test_the_json_has_what_the_text_has(rig):
    rig.agents[1].kill()
    status = status_when(rig, lambda status: status["lost_nodes"], "the loss")
    assert "node-1" in status["problems"][0] and json.dumps(status)

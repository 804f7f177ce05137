"""`gradbus events` and `gradbus drain` on real daemons."""

import json
import os
import signal
import subprocess

import pytest
import rig as rigs

GRADBUS = str(rigs.BIN / "gradbus")
pytestmark = pytest.mark.timeout(240)


def gradbus(rig, *words, **options):
    """A command that asks this rig's coordinator."""
    return subprocess.run([GRADBUS, *words, "--coordinator", rig.server.ready["address"]], text=True,
                          capture_output=True, check=False, timeout=rigs.DEADLINE_S, **options)


def events(rig, *words) -> list[dict]:
    """What has happened so far."""
    done = gradbus(rig, "events", "--json", *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def kinds(rig, *words) -> list[str]:
    """The kinds of all events."""
    return [event["kind"] for event in events(rig, *words)]


@pytest.fixture
def rig():
    """Two agents and their coordinator."""
    with rigs.cluster(2) as running:
        yield running


def test_events_are_what_has_happened_in_this_order(rig):
    ranks = rig.start_job(2, "red:x:1000:i64:sum", job="short")
    assert [rank.finish()[0] for rank in ranks] == [0, 0]
    looping = rig.start_job(2, "loop:x:1000:600:5", job="long")
    rig.wait_until_running("long")
    assert gradbus(rig, "stop", "long", "--reason", "make room").returncode == 0
    assert [rank.finish()[0] for rank in looping] == [3, 3]
    dying = rig.start_job(2, "loop:x:1000:600:5", job="dying")
    rig.wait_until_running("dying")
    dying[1].process.kill()
    dying[0].finish()
    rig.agents[1].kill()
    rigs.wait_until(lambda: "lost" in kinds(rig), what="the loss of a node")
    assert gradbus(rig, "status", "--forget", "node-1").returncode == 0
    rig.agents[0].kill(signal.SIGTERM)
    rigs.wait_until(lambda: "node_stopped" in kinds(rig), what="the end of a node")
    rig.server.kill(signal.SIGHUP)
    rigs.wait_until(lambda: "reloaded" in kinds(rig), what="the reload")
    happened = events(rig)
    assert [event["number"] for event in happened] == list(range(1, len(happened) + 1))
    happened = [event for event in happened if event["kind"] != "stalled"]  # a busy machine
    assert [event["kind"] for event in happened] == [
        "started", "attached", "attached", "job_started", "job_finished", "job_started", "job_stopped", "job_started",
        "job_failed", "lost", "forgotten", "node_stopped", "reloaded"]
    assert [event["job"] for event in happened if event["job"]] == ["short"] * 2 + ["long"] * 2 + ["dying"] * 2
    assert "make room" in happened[6]["text"] and "GB-P101" in happened[8]["text"]
    assert [event["node"] for event in happened if event["kind"] in ("lost", "forgotten", "node_stopped")] == [
        "node-1", "node-1", "node-0"]
    assert [kind for kind in kinds(rig, "--job", "long") if kind != "stalled"] == ["job_started", "job_stopped"]
    assert kinds(rig, "--node", "node-1") == ["attached", "lost", "forgotten"]
    text = gradbus(rig, "events").stdout.splitlines()
    assert len(text) > len(happened) and text[0].split() == ["TIME", "EVENT", "NODE", "OR", "JOB", "WHAT"]
    assert "\x1b" not in "".join(text)


def test_follow_prints_what_happens_and_survives_a_restart_of_the_coordinator(rig):
    address = rig.server.ready["address"]
    with subprocess.Popen([GRADBUS, "events", "--follow", "--json", "--coordinator", address], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as follower:
        def next_kind():
            return json.loads(follower.stdout.readline())["kind"]

        try:
            assert [next_kind() for _ in range(3)] == ["started", "attached", "attached"]
            rig.server.kill()
            rig.server.process.wait()
            rig.server = rig.start_daemon("gradbus-server", "--role=coordinator", "--listen", address)
            assert [next_kind() for _ in range(3)] == ["started", "attached", "attached"]
            follower.send_signal(signal.SIGINT)
            _, stderr = follower.communicate(timeout=rigs.DEADLINE_S)
            assert follower.returncode == 0
            assert stderr.count("\n") <= 1 and (not stderr or stderr.startswith("GB-C501"))
        finally:
            follower.kill()


def test_a_drained_node_keeps_its_job_and_gets_no_new_one(rig):
    running = rig.start_job(2, "loop:x:1000:600:5", f"touch:{rig.folder}/never", job="running")
    rig.wait_until_running("running")
    done = gradbus(rig, "drain", "node-1", "--reason", "new disk")
    assert (done.returncode, done.stdout) == (0, "node node-1 takes no new jobs\n"), done.stderr
    refused = rig.start_job(2, "red:x:1000:i64:sum", job="refused")
    status, out = refused[1].finish()
    assert status == 3 and "GB-C507 NODE_DRAINED" in out and "new disk" in out and "next: " in out, out
    refused[0].process.kill()
    alone = [rig.start_rank(rank, 2, "red:x:1000:i64:sum", job="alone", agent=0) for rank in range(2)]
    assert [rank.finish()[0] for rank in alone] == [0, 0], "other nodes take jobs"
    before = operations(rig)
    rigs.wait_until(lambda: operations(rig) > before, what="progress of the job that runs")
    shown = gradbus(rig, "status")
    assert shown.returncode == 0 and "drained: node-1 takes no new jobs for" in shown.stdout, shown.stdout
    assert {agent["name"]: agent["drained"] for agent in rig.status()["agents"]} == {"node-0": False, "node-1": True}
    assert gradbus(rig, "drain", "node-1", "--undo").stdout == "node node-1 takes jobs again\n"
    again = rig.start_job(2, "red:x:1000:i64:sum", job="again")
    assert [rank.finish()[0] for rank in again] == [0, 0]
    assert all(rank.process.poll() is None for rank in running)


def operations(rig) -> int:
    """Of the first rank of the job that runs."""
    job = next(job for job in rig.status()["jobs"] if job["job"] == "running")
    return job["ranks"][0]["operations"]


def test_a_drained_node_stays_drained_when_its_agent_or_the_coordinator_is_restarted(rig):
    def drained():
        return [node["node"] for node in rig.status().get("drained_nodes", [])]

    assert gradbus(rig, "drain", "node-1").returncode == 0
    rig.agents[1].kill()
    rig.agents[1].process.wait()
    rig.start_agent("node-1")
    assert drained() == ["node-1"]
    address = rig.server.ready["address"]
    rig.server.kill()
    rig.server.process.wait()
    rig.server = rig.start_daemon("gradbus-server", "--role=coordinator", "--listen", address)
    rigs.wait_until(lambda: drained() == ["node-1"], what="the drain under the new coordinator")


def test_who_may_drain_and_what_is_refused(rig, tmp_path):
    for words, code in ((["drain", "node-9"], "GB-C505"), (["drain", "node-1", "--undo"], "GB-C505"),
                        (["drain"], "GB-F100")):
        done = gradbus(rig, *words)
        assert done.returncode == (2 if code == "GB-F100" else 1) and done.stderr.startswith(code), done.stderr
        assert done.stderr.count("\n") == 1
    other = rigs.make_token_file(tmp_path / "token")
    assert gradbus(rig, "drain", "node-1", "--token-file", str(other)).stderr.startswith("GB-C503")
    # Without the token this node's agent asks: for its own node, and for root and the agent's user.
    without = {name: value for name, value in os.environ.items() if not name.startswith("GRADBUS_")}
    without["GRADBUS_SOCKET"] = rig.agents[0].ready["socket"]

    def through_the_agent(*words, **options):
        return subprocess.run([GRADBUS, "drain", *words], env=without, text=True, capture_output=True, check=False,
                              timeout=rigs.DEADLINE_S, **options)

    assert through_the_agent("node-0").returncode == 0
    assert through_the_agent("node-1").stderr.startswith("GB-J408")
    if os.getuid() == 0:
        for path in (rig.folder, rig.agents[0].ready["socket"]):
            os.chmod(path, 0o777)
        done = through_the_agent("node-0", "--undo", user=12345)
        assert done.returncode == 1 and done.stderr.startswith("GB-J408"), done.stderr
    assert [node["node"] for node in rig.status()["drained_nodes"]] == ["node-0"]

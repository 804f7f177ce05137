"""docs/reference/json.md has the keys that the commands print, and no others."""

import json
import re
import subprocess

import pytest
import rig as rigs

PAGE = (rigs.REPOSITORY / "docs/reference/json.md").read_text()
GRADBUS = str(rigs.BIN / "gradbus")
pytestmark = pytest.mark.timeout(240)


def documented(heading: str, command: str = "") -> set[str]:
    """The keys of a section's table: "a[].b" and what its row abbreviates as ".c"."""
    section = PAGE.split(f"\n## {heading}", 1)[1].split("\n## ", 1)[0]
    found = set()
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if not cells or not cells[-2].startswith("`") or (command and cells[0] != f"`{command}`"):
            continue
        prefix = ""
        for key in re.findall(r"`([^`]+)`", cells[-2]):
            if not key.startswith("."):
                prefix = key.rsplit(".", 1)[0] if "." in key else ""
            found.add(prefix + key if key.startswith(".") else key)
    return found


def keys(value, path: str = "") -> set[str]:
    """The paths of all leaves; empty arrays and objects have none."""
    if isinstance(value, dict):
        return set().union(*(keys(of, f"{path}.{name}" if path else name) for name, of in value.items()))
    if isinstance(value, list):
        return set().union(*(keys(of, f"{path}[]") for of in value))
    return {path}


def run(*words, rig=None, codes=(0,)):
    """What a command prints as JSON."""
    address = ["--coordinator", rig.server.ready["address"]] if rig else []
    done = subprocess.run([GRADBUS, *words, "--json", *address], text=True, capture_output=True, check=False,
                          timeout=rigs.DEADLINE_S)
    assert done.returncode in codes, done
    assert done.stdout.endswith("\n")
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def rig():
    """A cluster in which everything that status can show is there at once, but for several paths."""
    with rigs.cluster(3, shards=1) as running:
        running.start_job(2, "loop:x:50000:600:20", job="coded", env={"GRADBUS_COMPRESSION": "fp16:fidelity=2"})
        late = running.start_job(2, "loop:x:1000:600:20", job="changed")
        running.wait_until_running("changed")
        running.wait_until_running("coded")
        for words in (["mode", "changed", "*", "delayed:k=1"], ["drain", "node-2"]):
            assert subprocess.run([GRADBUS, *words, "--coordinator", running.server.ready["address"]], check=False,
                                  capture_output=True, timeout=rigs.DEADLINE_S).returncode == 0
        late[0].process.kill()
        running.agents[2].kill()
        rigs.wait_until(lambda: running.status()["lost_nodes"], what="a lost node")
        rigs.wait_until(lambda: running.status()["paths"], what="a measured path")
        rigs.wait_until(lambda: any(job["fidelity"] for job in running.status()["jobs"]), what="fidelity")
        yield running


def test_status_and_top(rig):
    wanted = documented("gradbus status, gradbus top")
    # A mode with staleness and a node with several paths are in other tests of status.
    elsewhere = {key for key in wanted if key.startswith(("jobs[].staleness[]", "agents[].transport.paths[]"))}
    for words in (["status"], ["top", "--once"]):
        printed = keys(run(*words, rig=rig, codes=(0, 1)))
        assert printed == wanted - elsewhere, (printed ^ (wanted - elsewhere), words)


def test_jobs_events_and_the_rest(rig):
    assert keys(run("jobs", rig=rig)) == documented("gradbus jobs")
    assert keys(run("events", rig=rig)) == documented("gradbus events")
    several = "gradbus page, gradbus env, gradbus doctor"
    assert keys(run("env")) == documented(several, "env")
    assert keys(run("doctor", codes=(0, 1))) == documented(several, "doctor")
    assert keys(run("explain", "P101")) == documented("gradbus explain")
    assert keys(run("explain")) == {f"[].{key}" for key in documented("gradbus explain")}
    assert keys(run("explain", "--exit-codes")) == {"[].code", "[].commands", "[].meaning"}
    plan = run("plan", "--model", "resnet50", "--nodes", "4", "--bandwidth", "10gbit")
    assert keys(plan) == documented("gradbus plan")


def test_commands_that_change_something(rig):
    """The last ones that use the cluster. Each has done what it prints."""
    rig.start_job(2, "loop:x:1000:600:20", job="acted", agent=0)
    rig.wait_until_running("acted")
    trace = rig.folder / "trace.json"
    printed = {
        "drain": run("drain", "node-1", rig=rig),
        "mode": run("mode", "acted", "*", "delayed:k=1", rig=rig),
        "trace": run("trace", "acted", "--seconds", "0.2", "-o", str(trace), rig=rig),
        "stop": run("stop", "acted", rig=rig),
        "forget": run("status", "--forget", "node-2", rig=rig),
    }
    for command, value in printed.items():
        assert keys(value) == documented("gradbus stop, gradbus drain, gradbus mode, gradbus trace", command), command
    assert printed["drain"] == {"node": "node-1", "drained": True}
    assert run("drain", "node-1", "--undo", rig=rig) == {"node": "node-1", "drained": False}
    assert printed["mode"] == {"job": "acted", "group": "*", "mode": "delayed:k=1"}
    assert printed["trace"]["file"] == str(trace) and trace.stat().st_size > 0
    assert printed["stop"] == {"job": "acted", "stopped": True}
    assert printed["forget"] == {"node": "node-2", "forgotten": True}


def test_every_command_has_json():
    """But run, whose output is that of its ranks."""
    def said(*words):
        command = [GRADBUS, *words, "--help"]
        return subprocess.run(command, text=True, capture_output=True, check=True, timeout=60).stdout

    text = said()
    commands = re.findall(r"(?m)^  ([a-z]+) {2,}", text[text.index("ubcommands") :])
    assert len(commands) > 10
    assert [name for name in commands if not re.search(r"^ +--json\b", said(name), re.M)] == ["run"]


def test_the_page_of_events_has_the_kinds_of_the_code():
    code = (rigs.REPOSITORY / "server/coordinator/jobs/event_log.h").read_text()
    kinds = re.findall(r'\{EventKind::\w+, "(\w+)"', code)
    page = (rigs.REPOSITORY / "docs/reference/events.md").read_text()
    section = page.split("\n## What gradbus events prints\n")[1].split("\n## ")[0]
    assert kinds and re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == kinds

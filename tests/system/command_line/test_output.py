"""Where commands print to: a full disk, a pipe whose reader has gone, and terminals without escape sequences."""

import contextlib
import os
import pty
import select
import subprocess
import time

import pytest
import rig as rigs
from conftest import clean_environment

pytestmark = pytest.mark.timeout(240)
GRADBUS = str(rigs.BIN / "gradbus")
WITHOUT_DAEMONS = {
    "help": ["--help"], "help of a command": ["run", "--help"], "version": ["--version"],
    "all errors": ["explain"], "one error": ["explain", "P101"], "errors as JSON": ["explain", "--json"],
    "exit codes": ["explain", "--exit-codes"], "doctor": ["doctor"], "doctor as JSON": ["doctor", "--json"],
    "env": ["env"], "plan": ["plan", "--model", "resnet50", "--nodes", "4"],
    "a job": ["run", "-np", "2", "--", "echo", "hi"], "a job without prefix": ["run", "-np", "1", "--", "echo", "hi"],
}  # fmt: skip
OF_A_CLUSTER = {
    "status": ["status"], "status as JSON": ["status", "--json"], "watched status": ["status", "--watch"],
    "top": ["top"], "jobs": ["jobs"], "events": ["events"], "followed events": ["events", "--follow"],
    "drain": ["drain", "node-0"], "drain as JSON": ["drain", "--undo", "--json", "node-0"],
}  # fmt: skip


@pytest.fixture(scope="module")
def cluster():
    """The environment of a command that finds a coordinator and an agent."""
    with rigs.cluster(1) as rig:
        variables = {"TERM": "xterm", "GRADBUS_COORDINATOR": rig.server.ready["address"]}
        yield clean_environment(GRADBUS_TOKEN_FILE=str(rigs.TOKEN_FILE), **variables)


def run(words, environment, stdout, **options):
    return subprocess.run([GRADBUS, *words], env=environment, stdout=stdout, stderr=subprocess.PIPE, text=True,
                          check=False, timeout=rigs.DEADLINE_S, **options)  # fmt: skip


@pytest.mark.parametrize("name", [*WITHOUT_DAEMONS, *OF_A_CLUSTER])
def test_a_full_disk_is_told(cluster, name):
    words = WITHOUT_DAEMONS.get(name) or OF_A_CLUSTER[name]
    environment = cluster if name in OF_A_CLUSTER else clean_environment()
    with open("/dev/full", "w") as full:
        done = run(words, environment, full)
    assert done.returncode == 1, done
    (told,) = [line for line in done.stderr.splitlines() if not line.startswith("gradbus run: ")]
    assert told.startswith("GB-F117 OUTPUT_LOST: ") and "No space left on device | next: " in told, done


@pytest.mark.parametrize("ignored", [False, True], ids=["default", "ignored"])
@pytest.mark.parametrize("name", ["all errors", "errors as JSON", "doctor", "a job", "status", "watched status"])
def test_a_reader_that_has_gone_ends_a_command_quietly(cluster, name, ignored):
    words = WITHOUT_DAEMONS.get(name) or OF_A_CLUSTER[name]
    environment = cluster if name in OF_A_CLUSTER else clean_environment()
    reader, writer = os.pipe()
    os.close(reader)
    done = run(words, environment, writer, restore_signals=not ignored)
    os.close(writer)
    quiet = [line for line in done.stderr.splitlines() if not line.startswith("gradbus run: stopping")]
    assert done.returncode in (141, -13) and quiet == [], done


def written_to_terminal(words, environment, until=()):
    """What a terminal receives until the command ends, or until it has received all of these words."""
    leader, follower = pty.openpty()
    process = subprocess.Popen([GRADBUS, *words], env=environment, stdin=follower, stdout=follower, stderr=follower)
    os.close(follower)
    received, end = "", time.monotonic() + rigs.DEADLINE_S
    with contextlib.suppress(OSError):  # it has ended
        while time.monotonic() < end and not (until and all(received.count(word) >= 2 for word in until)):
            if select.select([leader], [], [], 0.1)[0]:
                received += os.read(leader, 65536).decode()
    process.terminate()
    process.wait(rigs.DEADLINE_S)
    os.close(leader)
    return received


PROGRESS = r"for i in 1 2 3 4; do printf '\rstep %s' $i >&2; sleep 0.2; done; echo >&2; echo end"
SHOWN = {
    "status": (["status", "--watch"], ["coordinator"]),
    "top": (["top"], ()),
    "doctor": (["doctor"], ()),
    "run": (["run", "-np", "2", "--", "sh", "-c", PROGRESS], ()),
}


@pytest.mark.parametrize("name", SHOWN)
@pytest.mark.parametrize("kind", ["dumb", None], ids=["dumb", "unset"])
def test_a_terminal_that_knows_no_escape_sequences_gets_none(cluster, name, kind):
    words, until = SHOWN[name]
    others = {key: value for key, value in cluster.items() if key != "TERM"}
    environment = others if kind is None else {**others, "TERM": kind}
    if name == "run":
        environment.pop("GRADBUS_COORDINATOR")
    received = written_to_terminal(words, environment, until)
    assert len(received) > 30 and "\x1b" not in received, received
    assert "\r" not in received.replace("\r\n", ""), received


def test_a_terminal_that_knows_them_gets_colours_and_pages(cluster):
    assert "\x1b[32m" in written_to_terminal(["doctor"], cluster)
    assert "\x1b[2J" in written_to_terminal(["status", "--watch"], cluster, ["coordinator"])
    words, _ = SHOWN["run"]
    others = {key: value for key, value in cluster.items() if key != "GRADBUS_COORDINATOR"}
    assert "\r\x1b[K" in written_to_terminal(words, others)

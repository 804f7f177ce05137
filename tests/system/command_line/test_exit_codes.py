"""Each row of the table of exit codes (gradbus explain --exit-codes) comes from a real command."""

import json
import signal
import subprocess

import conftest
import pytest
import rig as rigs

GRADBUS = str(rigs.BIN / "gradbus")
pytestmark = pytest.mark.timeout(240)
NOBODY = "127.0.0.1:1"  # no coordinator
RUN = ("run", "--embedded", "-np", "2", "--no-prefix", "--")


@pytest.fixture(scope="module")
def cluster():
    """A cluster with a job that has failed and one that has finished."""
    with rigs.cluster(1) as rig:
        for job, last in (("good", "say:done"), ("bad", "kill:9")):
            for rank in rig.start_job(1 if job == "good" else 2, "red:x:100:i64:sum", last, job=job):
                rank.finish()
        yield rig


@pytest.fixture(scope="module")
def unhealthy():
    """A cluster that has lost an agent."""
    with rigs.cluster(2) as rig:
        rig.agents[1].kill()
        rigs.wait_until(lambda: rig.status()["lost_nodes"], what="a lost node")
        yield rig


def code(*words: str, **variables: str) -> tuple[int, str]:
    """(exit code, stderr) of the command."""
    done = subprocess.run([GRADBUS, *words], env=conftest.clean_environment(**variables), capture_output=True,
                          text=True, check=False, timeout=rigs.DEADLINE_S)  # fmt: skip
    return done.returncode, done.stderr


def at(rig, *words: str) -> int:
    """The exit code of a command for this coordinator."""
    address = rig.server.ready["address"]
    return code(*words, "--coordinator", address, GRADBUS_TOKEN_FILE=str(rigs.TOKEN_FILE))[0]


def one_line(answer: tuple[int, str]) -> int:
    """The exit code of a command that must have said why in one line."""
    status, error = answer
    assert error.count("\n") == 1 and error.startswith(("GB-", "gradbus: GB-")), error
    return status


def test_0(cluster):
    assert at(cluster, "jobs") == at(cluster, "events") == code("explain", "P101")[0] == 0
    assert at(cluster, "status") == at(cluster, "status", "--job", "good") == 0


def test_1(cluster, unhealthy):
    assert one_line(code("explain", "X999")) == 1
    assert at(cluster, "status", "--job", "bad") == 1
    assert at(unhealthy, "status") == 1


def test_the_doctor_says_0_or_1_as_it_finds():
    """1 where the kernel says that it is 2.6, which is too old."""
    for before, wanted in (([], 0), (["setarch", "--uname-2.6"], 1)):
        done = subprocess.run([*before, GRADBUS, "doctor", "--json"], env=conftest.clean_environment(), text=True,
                              capture_output=True, check=False, timeout=rigs.DEADLINE_S)  # fmt: skip
        assert json.loads(done.stdout)["usable"] == (wanted == 0) and done.returncode == wanted, done


def test_2(cluster):
    assert one_line(code("status", "--jsno")) == 2
    for command in ("status", "top", "jobs", "events", "page"):
        assert one_line(code(command, "--coordinator", NOBODY)) == 2, command


def test_126_and_127(tmp_path):
    (tmp_path / "program").write_text("#!/bin/sh\n")
    assert code(*RUN, str(tmp_path / "program"))[0] == 126
    assert code(*RUN, str(tmp_path / "nothing"))[0] == 127


def test_128_and_the_signal():
    assert code(*RUN, "sh", "-c", "kill -TERM $$")[0] == 128 + signal.SIGTERM
    process = subprocess.Popen([GRADBUS, *RUN, "sh", "-c", "echo up; exec sleep 60"], stdout=subprocess.PIPE, text=True,
                               env=conftest.clean_environment())  # fmt: skip
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(rigs.DEADLINE_S) == 130
    process.stdout.close()


def test_141():
    """Its reader ends before it writes."""
    done = subprocess.run(["bash", "-c", f"{{ sleep 0.3; {GRADBUS} explain; echo $? >&2; }} | true"], text=True,
                          capture_output=True, check=False, timeout=rigs.DEADLINE_S,
                          env=conftest.clean_environment())  # fmt: skip
    assert done.stderr == "141\n"


def test_others_are_the_code_of_the_first_rank_that_failed():
    assert code(*RUN, "sh", "-c", "exit $((GRADBUS_RANK * 7))")[0] == 7


def test_the_table_has_no_other_codes():
    """A new row needs a test above."""
    done = subprocess.run([GRADBUS, "explain", "--exit-codes", "--json"], capture_output=True, text=True, check=True,
                          timeout=rigs.DEADLINE_S)  # fmt: skip
    assert [(row["code"], row["commands"]) for row in json.loads(done.stdout)] == [
        ("0", "all"), ("0", "status"), ("0", "doctor"), ("1", "all"), ("1", "status"), ("1", "doctor"), ("2", "all"),
        ("2", "status, top, jobs, events, page"), ("126", "run"), ("127", "run"), ("128 + signal", "run"),
        ("141", "all"), ("others", "run")]  # fmt: skip

"""Mistakes of operators beside a job that runs: each is one clear line, and every sum of the job stays exact."""

import os
import signal
import subprocess

import pytest
import rig as rigs
from scrape import METRICS, get

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def running():
    """Two agents that read configuration files, and a job that checks every sum until its file comes."""
    with rigs.cluster(0) as rig:
        for name in ("node-0", "node-1"):
            config = rig.folder / f"{name}.toml"
            token = rigs.make_token_file(rig.folder / f"{name}.token")
            token.write_text(rigs.TOKEN_FILE.read_text())
            config.write_text(f'[agent]\nlog_level = "info"\ntoken_file = "{token}"\n')
            rig.start_agent(name, "--config", str(config), *METRICS)
        ranks = rig.start_job(2, "loop:x:5000:120:1", job="beside")
        rig.wait_until_running("beside")
        yield rig
        assert [rank.process.poll() for rank in ranks] == [None, None], "the job beside has ended"
        assert operations(rig) > 0


def operations(rig) -> int:
    """Of the job beside; each was checked by its ranks."""
    job = next(job for job in rig.status()["jobs"] if job["job"] == "beside")
    assert job["state"] == "running" and job["error"] == "", job
    return min(rank["operations"] for rank in job["ranks"])


def assert_job_continues(rig) -> None:
    """The job beside makes progress."""
    before = operations(rig)
    rigs.wait_until(lambda: operations(rig) > before, what="progress of the job beside")


def start(rig, name: str, *arguments: str) -> subprocess.CompletedProcess:
    """An agent that must refuse to start."""
    socket = [] if "--socket" in arguments else ["--socket", str(rig.folder / f"{name}.sock")]
    return subprocess.run(
        [rigs.BIN / "gradbus-agent", "--name", name, "--coordinator", rig.server.ready["address"], "--bind",
         "127.0.0.1:0", *socket, *arguments],
        capture_output=True, text=True, check=False, timeout=rigs.DEADLINE_S)


def assert_refused(done: subprocess.CompletedProcess, *words: str) -> None:
    """The last line on stderr is the error, with the product's form and these words."""
    line = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1 and done.stdout == "", done
    assert line.startswith("gradbus-agent: GB-") and " | next: " in line, line
    assert all(word in line for word in words), (words, line)


@pytest.mark.parametrize("text, words", [
    ('[agent]\nbindd = "127.0.0.1:0"\n', ("bindd", ":2", "bind")),
    ('[agnet]\nbind = "127.0.0.1:0"\n', ("agnet",)),
    ("[agent]\nbind = \n", (":2",)),
    ('[agent]\nclients_max = "many"\n', ("clients",)),
], ids=["unknown-key", "unknown-table", "no-toml", "wrong-type"])
def test_a_wrong_configuration_is_refused_at_the_start_and_at_a_reload(running, text, words):
    config = running.folder / "wrong.toml"
    config.write_text(text)
    assert_refused(start(running, "other", "--config", str(config)), "GB-F", *words)
    agent, used = running.agents[0], running.folder / "node-0.toml"
    before, size = used.read_text(), len(agent.text())
    used.write_text(text)
    agent.kill(signal.SIGHUP)
    rigs.wait_until(lambda: "reload: nothing has changed" in agent.text()[size:], what="the refusal of the reload")
    line = next(line for line in agent.text()[size:].splitlines() if "reload: nothing has changed" in line)
    assert all(word in line for word in words), line
    used.write_text(before)
    assert_job_continues(running)


def test_a_token_that_others_can_read_is_refused_at_the_start_and_at_a_reload(running):
    token = running.folder / "open.token"
    token.write_text(rigs.TOKEN_FILE.read_text())
    token.chmod(0o644)
    assert_refused(start(running, "other", "--token-file", str(token)), "GB-F104", str(token), "chmod")
    agent, used = running.agents[1], running.folder / "node-1.token"
    size = len(agent.text())
    used.chmod(0o644)
    agent.kill(signal.SIGHUP)
    rigs.wait_until(lambda: "GB-F104" in agent.text()[size:], what="the refusal of the reload")
    used.chmod(0o600)
    assert get(agent.ready["metrics"], "/readyz")[0] == 200
    assert_job_continues(running)


def test_a_second_agent_on_the_node_is_refused(running):
    socket = running.agents[0].ready["socket"]
    assert_refused(start(running, "other", "--socket", socket), "GB-A303", socket)
    assert os.path.exists(socket)
    assert_job_continues(running)


def test_the_socket_of_a_dead_agent_is_taken_over(running):
    first = running.start_agent("node-2")
    path = first.ready["socket"]
    first.kill()
    first.process.wait()
    assert os.path.exists(path), "the socket must be stale"
    second = running.start_agent("node-2")
    assert second.ready["socket"] == path
    ranks = [running.start_rank(rank, 2, "red:x:1000:i64:sum", job="on-it", agent=3) for rank in range(2)]
    assert [rank.finish()[0] for rank in ranks] == [0, 0]
    assert_job_continues(running)


def test_a_file_that_is_no_socket_is_left_alone(running):
    path = running.folder / "no.sock"
    path.write_text("somebody's data")
    done = start(running, "other", "--socket", str(path))
    assert_refused(done, "GB-D603", "is not a socket", str(path))
    assert path.read_text() == "somebody's data"
    assert_job_continues(running)


def test_a_socket_path_that_is_not_utf8_is_used(running):
    """Paths are bytes. JSON of the agent has a replacement character instead."""
    path = os.fsdecode(os.fsencode(running.folder) + b"/\xff.sock")
    agent = running.start_daemon("gradbus-agent", "--coordinator", running.server.ready["address"], "--name", "odd",
                                 "--socket", path, "--bind", "127.0.0.1:0")  # fmt: skip
    assert agent.ready["socket"].endswith("/\ufffd.sock") and os.path.exists(path)
    agent.kill()
    agent.process.wait()
    assert_job_continues(running)

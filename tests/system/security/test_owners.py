"""A job belongs to one user: another user's ranks are refused on every node, and the job goes on."""

from __future__ import annotations

import re
import subprocess

import pytest
import rig as rigs
from intruder import UID, intruder, needs_root

pytestmark = needs_root


@pytest.fixture(scope="module")
def open_nodes():
    """Two nodes whose sockets every user may open."""
    with rigs.cluster(2, "--socket-mode", "0666") as running:
        running.folder.chmod(0o755)
        yield running


@pytest.fixture(scope="module")
def other():
    """Another user."""
    with intruder() as one:
        yield one


def assert_not_owner(result: tuple[int, str], *parts: str) -> None:
    """One error line that names both users."""
    status, output = result
    assert status == 3, output
    lines = [line for line in output.splitlines() if "GB-J408 NOT_OWNER" in line]
    assert len(lines) == 1, output
    assert "root (uid 0)" in lines[0] and f"uid {UID}" in lines[0], output
    assert "| next: " in lines[0], output
    for part in parts:
        assert part in lines[0], output


@pytest.mark.parametrize("node", [0, 1])
def test_an_intruder_cannot_take_a_missing_rank(open_nodes, other, node):
    """Refused on the owner's node and on another one, both users named; the owner's ranks start."""
    job = f"mine-{node}"
    first = open_nodes.start_rank(0, 2, "red:x:1000:f32:sum", job=job, agent=0)
    open_nodes.wait_for_rank(0, job)
    assert_not_owner(other.rank(open_nodes.agents[node].ready["socket"], 1, 2, job, "red:x:1000:f32:sum"),
                     f'job "{job}"')
    second = open_nodes.start_rank(1, 2, "red:x:1000:f32:sum", job=job, agent=1)
    for rank in (first, second):
        status, output = rank.finish()
        assert status == 0, output


def test_an_intruder_cannot_wait_for_a_running_jobs_name(open_nodes, other, tmp_path):
    """It is refused at once, not after the patience that the job's own ranks get; the job goes on."""
    ranks = open_nodes.start_job(2, f"touch:{tmp_path}/started", "loop:x:1000:3", job="long")
    rigs.wait_until(lambda: (tmp_path / "started").exists())
    for node in (0, 1):
        assert_not_owner(other.rank(open_nodes.agents[node].ready["socket"], 1, 2, "long"), 'job "long"')
    for rank in ranks:
        status, output = rank.finish()
        assert status == 0, output


def test_the_first_user_of_a_name_owns_it_until_the_job_ends(open_nodes, other):
    """Afterwards the name is free for others, who own it in turn."""
    socket = open_nodes.agents[0].ready["socket"]
    assert other.rank(socket, 0, 1, "turns", "red:x:10:f32:sum")[0] == 0
    own = open_nodes.start_rank(0, 1, "red:x:10:f32:sum", job="turns", agent=0)
    assert own.finish()[0] == 0
    jobs = [job for job in open_nodes.status()["jobs"] if job["job"] == "turns"]
    assert sorted(job["uid"] for job in jobs) == [0, UID]


def test_names_made_from_the_environment_hold_the_user(open_nodes, other):
    """Two users with one MASTER_ADDR and port, or with PMI and no id, have jobs of their own."""
    launchers = {
        "torchrun": {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "10.1.2.3", "MASTER_PORT": "29500"},
        "pmi": {"PMI_RANK": "0", "PMI_SIZE": "1"},
    }
    for launcher, variables in launchers.items():
        names = []
        for run in (other.run, lambda *words, env: own_run(other, *words, env=env)):
            status, output = run("gradbus", "env", env=variables)
            assert status == 0, output
            names.append(re.search(r"^job +(\S+)$", output, re.MULTILINE).group(1))
        assert len(set(names)) == 2 and all(name.startswith(launcher + "-u") for name in names), names


def test_ranks_of_two_users_with_one_address_are_two_jobs(open_nodes, other):
    """Both start at once, on the same two nodes, with one MASTER_ADDR and port and no job id."""
    sockets = [agent.ready["socket"] for agent in open_nodes.agents]

    def variables(rank):
        return {"GRADBUS_SOCKET": sockets[rank], "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "10.1.2.3",
                "MASTER_PORT": "29501"}

    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    others = [other.popen("scripted_rank", "red:x:1000:f32:sum", env=variables(rank), **pipes) for rank in (0, 1)]
    own = [subprocess.Popen([other.bin / "scripted_rank", "red:x:1000:i64:sum"], text=True, **pipes,
                            env={**other.environment, **variables(rank)}) for rank in (0, 1)]
    for process in (*others, *own):
        output, _ = process.communicate(timeout=rigs.DEADLINE_S)
        assert process.returncode == 0, output
    jobs = {job["uid"]: job for job in open_nodes.status()["jobs"] if job["job"].startswith("torchrun-")}
    assert set(jobs) == {0, UID} and all(f"-u{uid}-" in job["job"] for uid, job in jobs.items()), jobs


def own_run(other, *words, env):
    """The same program as the test's own user."""
    done = subprocess.run([rigs.BIN / words[0], *words[1:]], env={**other.environment, **env}, check=False, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout

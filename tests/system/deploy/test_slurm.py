"""Slurm runs jobs on two nodes: the prolog of the first job starts the agent, the epilog of the last one ends it."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import tempfile

import pytest
import rig as rigs
from conftest import PYTHONS, RANK_DEADLINE_S, clean_environment
from slurm import PATH, SCRIPTS, Slurm, why_no_slurm

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(why_no_slurm()), reason=why_no_slurm() or "Slurm runs here"),
]
NODES = ["node-1", "node-2"]
RANK = str(rigs.BIN / "scripted_rank")
SUM = [RANK, "red:x:1000:i64:sum"]  # fails unless every element is the sum over all ranks


def block_of_page(start: str) -> str:
    """The commands of the page's block that begins so."""
    page = (rigs.REPOSITORY / "docs/how-to/run-under-slurm.md").read_text()
    return re.search(rf"^```sh\n({start} .*?)^```$", page, re.MULTILINE | re.DOTALL)[1]


class Cluster:
    """Slurm, and a coordinator that runs all the time."""

    def __init__(self, folder: pathlib.Path, rig: rigs.Rig) -> None:
        self.folder = folder
        self.rig = rig
        self.settings = {
            "GRADBUS_SLURM_AGENT": str(rigs.BIN / "gradbus-agent"),
            "GRADBUS_SLURM_USER": "",
            "GRADBUS_SLURM_RUN": f"{folder}/run-$SLURMD_NODENAME",
            "GRADBUS_SLURM_STATE": f"{folder}/agent-$SLURMD_NODENAME",
            "GRADBUS_SLURM_LOG": f"{folder}/agent-$SLURMD_NODENAME.log",
            "GRADBUS_SLURM_OPTIONS": f"--coordinator {rig.server.ready['address']} --bind 127.0.0.1:0",
            "GRADBUS_TOKEN_FILE": str(rigs.TOKEN_FILE),
        }
        self.slurm = Slurm(folder, NODES)
        self.slurm.environment = {**clean_environment(), **{
            name: self.slurm.environment[name] for name in ("PATH", "SLURM_CONF")}}  # fmt: skip

    def agents(self) -> dict[str, int]:
        """{node: process id} of agents that the coordinator knows."""
        return {agent["name"]: agent["pid"] for agent in self.rig.status()["agents"]}

    def wait_for_no_agent(self) -> None:
        """Epilogs have ended them."""
        rigs.wait_until(lambda: not self.agents() and self.slurm.idle(), what="the epilogs")
        assert self.rig.status()["lost_nodes"] == []

    def submit(self, *words: str, **variables: str) -> str:
        """sbatch; the job's number."""
        return re.search(r"\d+", self.slurm.call("sbatch", *words, **variables).stdout)[0]

    def wait_for_jobs(self) -> None:
        """The queue is empty; sbatch --wait asks every few seconds only."""
        rigs.wait_until(lambda: not self.slurm.call("squeue", "--noheader").stdout, RANK_DEADLINE_S, "jobs")


@pytest.fixture(scope="module")
def cluster():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gradbus-slurm-"))
    folder.chmod(0o755)
    with rigs.cluster(0) as rig:
        running = Cluster(folder, rig)
        try:
            running.slurm.start()
            running.slurm.install(block_of_page("sudo install"), running.settings)
            yield running
        finally:
            running.slurm.stop()
            for pid in running.agents().values():  # of a test that failed in between
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
            shutil.rmtree(folder, ignore_errors=True)


def test_srun_starts_the_ranks_of_one_job(cluster):
    assert cluster.agents() == {}
    done = cluster.slurm.call("srun", "-N2", "-n4", "--ntasks-per-node=2", "--label", *SUM)
    assert sorted(done.stdout.split("\n")) == ["", *(f"{rank}: ok red:x:1000:i64:sum" for rank in range(4))]
    (job,) = cluster.rig.status()["jobs"]
    assert job["job"].startswith("slurm-") and job["world_size"] == 4
    assert sorted((rank["rank"], rank["agent"]) for rank in job["ranks"]) == [
        (0, "node-1"), (1, "node-1"), (2, "node-2"), (3, "node-2")]  # fmt: skip
    cluster.wait_for_no_agent()


def test_sbatch_trains_a_model(cluster):
    """deploy/slurm/train.sbatch, as it is in the repository."""
    python = PYTHONS["newest"]
    if not python.exists():
        pytest.skip(f"{python} is missing: run scripts/setup.sh")
    program = str(rigs.REPOSITORY / "examples/digits/train.py")
    log = cluster.folder / "digits.log"
    cluster.submit(f"--output={log}", SCRIPTS / "train.sbatch", "--epochs", "8", PYTHON=str(python), PROGRAM=program,
                   OMP_NUM_THREADS="1")  # fmt: skip
    cluster.wait_for_jobs()
    text = log.read_text()
    result = json.loads(next(line for line in text.splitlines() if line.startswith("{")))
    assert result["world_size"] == 4 and result["ranks_identical"] and result["accuracy"] > 0.95, text
    cluster.wait_for_no_agent()


def test_the_commands_of_the_page_run(cluster):
    """With a small train.py: srun and sbatch give a job of four ranks each."""
    block = block_of_page("srun")
    place = cluster.folder / "page"
    (place / "deploy").mkdir(parents=True)
    (place / "deploy/slurm").symlink_to(SCRIPTS)
    (place / "train.py").symlink_to(rigs.REPOSITORY / "tests/system/operation/documentation/train.py")
    before = {job["job"] for job in cluster.rig.status()["jobs"]}
    cluster.slurm.call("bash", "-euc", f"cd {place}\n{block}", PATH=f"{PYTHONS['newest'].parent}:{PATH}")
    cluster.wait_for_jobs()
    (log,) = place.glob("digits-*.log")
    assert log.read_text() == ""
    jobs = [job for job in cluster.rig.status()["jobs"] if job["job"] not in before]
    assert [(job["world_size"], job["outcome"]) for job in jobs] == [(4, "finished")] * 2, jobs
    cluster.wait_for_no_agent()


SSH = """#!/bin/sh
# Stands in for ssh: the node is this machine, and its agent has its socket in the node's folder. Options come first.
while [ $# -gt 2 ]; do shift; done
export GRADBUS_SOCKET={folder}/run-$1/agent.sock
exec sh -c "$2"
"""


def test_gradbus_run_reads_the_nodes_of_an_allocation(cluster):
    """The page's command, in an allocation whose agents run; Slurm writes the list as node-[1-2]."""
    place = cluster.folder / "allocation"
    place.mkdir()
    (place / "ssh").write_text(SSH.format(folder=cluster.folder))
    (place / "ssh").chmod(0o755)
    (place / "train.py").symlink_to(rigs.REPOSITORY / "tests/system/operation/documentation/train.py")
    before = {job["job"] for job in cluster.rig.status()["jobs"]}
    block = block_of_page("sbatch").replace("sbatch ", f"sbatch --wait --output={place}/log ")
    path = f"{place}:{rigs.BIN}:{PYTHONS['newest'].parent}:{PATH}"
    done = cluster.slurm.call("bash", "-euc", f"cd {place}\n{block}", PATH=path, check=False)
    assert done.returncode == 0, done.stderr + (place / "log").read_text()
    (job,) = [job for job in cluster.rig.status()["jobs"] if job["job"] not in before]
    assert (job["world_size"], job["outcome"]) == (2, "finished"), job
    assert sorted((rank["rank"], rank["agent"]) for rank in job["ranks"]) == [(0, "node-1"), (1, "node-2")], job
    cluster.wait_for_no_agent()


def test_jobs_on_a_node_share_the_agent(cluster):
    """It runs until the last of them has ended; each step is a job, with as many ranks as the step has tasks."""
    (cluster.folder / "wait.sh").write_text('#!/bin/sh\nuntil [ -e "$1" ]; do sleep 0.05; done\n')
    first = cluster.submit("-N2", "-n4", "--ntasks-per-node=2", cluster.folder / "wait.sh", cluster.folder / "first")
    rigs.wait_until(lambda: set(cluster.agents()) == set(NODES), what="the agents of the first job")
    before = cluster.agents()
    cluster.slurm.call("srun", "-N2", "-n2", "--ntasks-per-node=1", *SUM)
    cluster.slurm.call("srun", f"--jobid={first}", "--overlap", "-N2", "-n3", *SUM)
    assert cluster.agents() == before
    assert {2, 3} <= {job["world_size"] for job in cluster.rig.status()["jobs"]}
    (cluster.folder / "first").touch()
    cluster.wait_for_no_agent()


def start_loop(cluster) -> str:
    """A job of four ranks on both nodes that exchange until the job is cancelled; its number."""
    job = cluster.submit("-N2", "-n4", "--ntasks-per-node=2", "--wrap", f"srun {RANK} loop:grad:50000:600")
    rigs.wait_until(lambda: operations(cluster, job) > 0, what="the loop")
    assert set(cluster.agents()) == set(NODES)
    return job


def operations(cluster, job: str) -> int:
    """Of the rank that has done the fewest."""
    jobs = [one for one in cluster.rig.status()["jobs"] if one["job"].endswith(f"-{job}-0")]
    ranks = [rank for one in jobs for rank in one["ranks"]]
    return min(rank["operations"] for rank in ranks) if len(ranks) == 4 else 0


def test_cancelled_jobs_leave_no_agent(cluster):
    job = start_loop(cluster)
    cluster.slurm.call("scancel", job)
    cluster.wait_for_no_agent()


def test_a_new_configuration_leaves_jobs_and_agents_alone(cluster):
    """scontrol reconfigure with a job that runs: it goes on with its agents, and the next job has the new settings."""
    job = start_loop(cluster)
    before = cluster.agents()
    settings = cluster.folder / "settings"
    old = settings.read_text()
    settings.write_text(old.replace("--bind", "--log-format json --bind"))
    with cluster.slurm.reconfigured():
        with open(cluster.folder / "slurm.conf", "a") as conf:
            conf.write("KillWait=17\n")
        cluster.slurm.call("scontrol", "reconfigure")
    assert re.search(r"KillWait += 17 sec", cluster.slurm.call("scontrol", "show", "config").stdout)
    done = operations(cluster, job)
    rigs.wait_until(lambda: operations(cluster, job) > done, what="progress after the change")
    assert cluster.agents() == before
    cluster.slurm.call("scancel", job)
    cluster.wait_for_no_agent()
    cluster.slurm.call("srun", "-N2", "-n2", "--ntasks-per-node=1", *SUM)
    assert (cluster.folder / "agent-node-1.log").read_text().splitlines()[-1].startswith('{"')
    settings.write_text(old)
    cluster.wait_for_no_agent()


def test_an_epilog_that_fails_drains_the_node_and_keeps_no_agent_for_ever(cluster):
    """The job is over, but its agent runs. After the repair, the next job uses that agent, and its epilog ends it."""
    job = start_loop(cluster)
    before = cluster.agents()
    settings = cluster.folder / "settings"
    good = settings.read_text()
    settings.write_text(f"{good}exit 7\n")
    cluster.slurm.call("scancel", job)
    for node in NODES:
        rigs.wait_until(lambda of=node: "Epilog error" in cluster.slurm.call("scontrol", "show", "node", of).stdout,
                        what="a drained node")  # fmt: skip
    assert cluster.agents() == before
    settings.write_text(good)
    for node in NODES:
        cluster.slurm.call("scontrol", "update", f"NodeName={node}", "State=resume")
    done = cluster.slurm.call("srun", "-N2", "-n2", "--ntasks-per-node=1", *SUM)
    assert done.stdout.count("ok red") == 2
    cluster.wait_for_no_agent()


def test_a_batch_script_without_srun_is_alone_and_says_so(cluster):
    """Its variables are those of rank 0 of 4, but nobody starts the others."""
    log = cluster.folder / "alone.log"
    cluster.submit("-N2", "-n4", f"--output={log}", "--wrap", " ".join(SUM))
    cluster.wait_for_jobs()
    text = log.read_text()
    assert "GB-J407 ALONE" in text and "SLURM_NTASKS=4" in text and "start the ranks with srun" in text, text
    cluster.wait_for_no_agent()


def test_an_agent_that_cannot_start_holds_the_job(cluster):
    """The prolog fails, Slurm drains the node; the node takes jobs again once the cause is gone."""
    settings = cluster.folder / "settings"
    good = settings.read_text()
    settings.write_text(good.replace("--bind", "--imagine"))
    log = cluster.folder / "held.log"
    job = cluster.submit("-N1", "-n1", "--nodelist=node-1", f"--output={log}", "--wrap", " ".join(SUM))
    rigs.wait_until(lambda: "drain" in cluster.slurm.call("sinfo", "-N", "-h", "-n", "node-1", "-o", "%T").stdout,
                    what="a drained node")  # fmt: skip
    assert "did not start" in cluster.slurm.logs() and "imagine" in cluster.slurm.logs()
    cluster.slurm.call("scancel", job)
    settings.write_text(good)
    cluster.slurm.call("scontrol", "update", "NodeName=node-1", "State=resume")
    done = cluster.slurm.call("srun", "-N2", "-n2", "--ntasks-per-node=1", *SUM)
    assert done.stdout.count("ok red") == 2
    cluster.wait_for_no_agent()

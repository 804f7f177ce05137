"""Ranks that other launchers start: their variables are read, and a rank that is alone by mistake says so."""

import subprocess

import conftest
import pytest
import rig as rigs

SCRIPTED_RANK = str(rigs.BIN / "scripted_rank")
STEPS = ["red:x:1000:i64:sum"]  # fails unless every element is the sum over all ranks


@pytest.fixture(scope="module")
def lone():
    """One agent and its coordinator."""
    with rigs.cluster(1) as running:
        yield running


def start(rig, **variables):
    """A rank with a launcher's variables and no others."""
    env = conftest.clean_environment(GRADBUS_SOCKET=rig.agents[0].ready["socket"], **variables)
    return subprocess.Popen([SCRIPTED_RANK, *STEPS], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True)


def finish(process):
    """(exit status, stdout, stderr)."""
    out, err = process.communicate(timeout=rigs.DEADLINE_S)
    return process.returncode, out, err


def test_horovodruns_ranks_are_one_job(lone):
    """What horovodrun's Gloo controller sets: rank, size, places and the rendezvous, which names the job."""
    ranks = [start(lone, HOROVOD_RANK=str(rank), HOROVOD_SIZE="3", HOROVOD_LOCAL_RANK=str(rank), HOROVOD_LOCAL_SIZE="3",
                   HOROVOD_CROSS_RANK="0", HOROVOD_CROSS_SIZE="1", HOROVOD_HOSTNAME="localhost",
                   HOROVOD_GLOO_RENDEZVOUS_ADDR="127.0.0.1", HOROVOD_GLOO_RENDEZVOUS_PORT="41234")
             for rank in range(3)]  # fmt: skip
    for status, out, err in map(finish, ranks):
        assert status == 0 and "GB-" not in err, (out, err)
    jobs = [job for job in lone.status()["jobs"] if job["job"].startswith("horovod-") and "41234" in job["job"]]
    assert [job["world_size"] for job in jobs] == [3], jobs


@pytest.mark.parametrize("variables, seen", [
    ({"FLUX_TASK_RANK": "1", "FLUX_JOB_SIZE": "4"}, "FLUX_TASK_RANK=1 and FLUX_JOB_SIZE=4"),
    ({"JSM_NAMESPACE_RANK": "0", "JSM_NAMESPACE_SIZE": "2"}, "JSM_NAMESPACE_RANK=0 and JSM_NAMESPACE_SIZE=2"),
    ({"HOROVOD_RANK": "2"}, "HOROVOD_RANK=2"),
    ({"SLURM_NTASKS": "8"}, "SLURM_NTASKS=8"),
])  # fmt: skip
def test_a_rank_that_is_alone_by_mistake_says_so_once(lone, variables, seen):
    status, out, err = finish(start(lone, **variables))
    assert status == 0, (out, err)
    warnings = [line for line in err.splitlines() if "GB-J407 ALONE" in line]
    assert len(warnings) == 1 and seen in warnings[0] and "GRADBUS_RANK=" in warnings[0], err


def test_a_rank_that_is_alone_on_purpose_says_nothing(lone):
    for variables in ({}, {"GRADBUS_RANK": "0", "GRADBUS_SIZE": "1", "SLURM_NTASKS": "8"}):
        status, out, err = finish(start(lone, **variables))
        assert status == 0 and err == "", (out, err)


def test_env_shows_the_warning(run_program):
    env = conftest.clean_environment(FLUX_TASK_RANK="1", FLUX_JOB_SIZE="4")
    status, output = run_program([rigs.BIN / "gradbus", "env"], env=env)
    assert status == 0 and "world size   1" in output and "GB-J407 ALONE" in output, output

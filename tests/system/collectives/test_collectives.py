"""Every collective on real daemons: exact or within the known bound, on 1 to 9 ranks and 1 to 4 agents."""

import contextlib
import json
import pathlib
import signal
import subprocess
import tempfile

import pytest
import rig as rigs
from conftest import PYTHONS, assert_all_ok, clean_environment, run_ranks

pytestmark = pytest.mark.timeout(300)
CHUNK_KIB = 4  # the smallest: sizes around chunk limits stay small, so one job does hundreds of cases
LAYOUTS = [(1, 1), (2, 1), (3, 1), (5, 1), (9, 1), (2, 2), (3, 2), (4, 3), (9, 4)]  # ranks, agents
DEATH_S = 30


@contextlib.contextmanager
def cluster(agents, *options, chunk_kib=CHUNK_KIB):
    """As rig.cluster, with small chunks and more options for the coordinator."""
    with tempfile.TemporaryDirectory(prefix="gradbus-test-") as folder:
        rig = rigs.Rig(pathlib.Path(folder))
        try:
            rig.server = rig.start_daemon(
                "gradbus-server", "--role=coordinator", "--listen", "127.0.0.1:0",
                "--chunk-kib", str(chunk_kib), *options)  # fmt: skip
            for index in range(agents):
                rig.start_agent(f"node-{index}")
            yield rig
        finally:
            rig.stop()


@pytest.fixture(scope="module")
def python():
    """NumPy is all that the ranks need, so one Python is enough."""
    return str(PYTHONS["newest"])


@pytest.fixture(scope="module")
def one_agent():
    with cluster(1) as rig:
        yield rig


def last_json(output):
    """What a rank reported before its "ok"."""
    return json.loads(output.strip().splitlines()[-2])


def all_collectives(rig, python, size):
    """Checksums of all results that every rank must have."""
    results = run_ranks(rig, python, "collectives/collectives.py", size, str(CHUNK_KIB << 10))
    assert_all_ok(results)
    sums = [last_json(output) for _, output in results]
    assert len(sums[0]) > 250
    for rank, other in enumerate(sums):
        differ = [case for case, checksum in sums[0].items() if other[case] != checksum]
        assert not differ, f"rank {rank} has other bits than rank 0: {differ[:5]}"
    return sums[0]


@pytest.mark.parametrize(("size", "agents"), LAYOUTS, ids=[f"{r}ranks-{a}agents" for r, a in LAYOUTS])
def test_every_collective_is_exact_and_the_same_everywhere(python, size, agents):
    with cluster(agents) as rig:
        all_collectives(rig, python, size)


@pytest.mark.parametrize(
    "algorithm", ["ring", "chain", "halving_doubling", "recursive_doubling", "tree", "direct"]
)
def test_every_algorithm_is_exact(python, algorithm):
    """Forced wherever it fits."""
    with cluster(3, "--algorithm", algorithm) as rig:
        all_collectives(rig, python, 4)


def test_deterministic_mode_gives_the_same_bits_for_every_chunk_size(python):
    found = []
    for chunk_kib in (CHUNK_KIB, 1024):
        with cluster(3, "--deterministic", chunk_kib=chunk_kib) as rig:
            found.append(all_collectives(rig, python, 4))
    assert found[0] == found[1]


@pytest.mark.parametrize(("size", "agents"), [(2, 1), (4, 1), (3, 2)])
def test_process_sets(python, size, agents):
    with cluster(agents) as rig:
        assert_all_ok(run_ranks(rig, python, "collectives/process_sets.py", size))


def test_ranks_that_want_different_sets_all_learn_it(one_agent, python):
    for _, output in (results := run_ranks(one_agent, python, "collectives/process_sets.py", 4, "differ")):
        report = last_json(output)
        assert report["error"] == "MismatchError" and "GB-O902" in report["text"], report
        assert "rank 0 gave the list [0, 1]" in report["text"], report
        assert "ranks [3] gave [1, 0]" in report["text"], report
    assert_all_ok(results)


def test_a_death_ends_its_sets_and_no_other(one_agent, python):
    results = run_ranks(one_agent, python, "collectives/process_sets.py", 4, "killed")
    assert results[1][0] == -signal.SIGKILL
    del results[1]
    assert_all_ok(results)
    for _, output in results:
        report = last_json(output)
        assert "rank 1" in report["text"] and report["seconds"] < DEATH_S, report


def test_status_shows_a_set_as_a_job(python, tmp_path):
    code = (
        "import gradbus, pathlib, time, sys\n"
        "gradbus.init()\n"
        "gradbus.add_process_set([1, 0])\n"
        "pathlib.Path(sys.argv[1], str(gradbus.rank())).touch()\n"
        "while not pathlib.Path(sys.argv[1], 'end').exists(): time.sleep(0.01)\n"
    )
    with cluster(1) as rig:
        ranks = rig.start_job(2, str(tmp_path), program=[python, "-c", code], job="shown")
        rigs.wait_until(lambda: len(list(tmp_path.iterdir())) == 2, timeout=60, what="both ranks")
        shown = subprocess.run(
            [rigs.BIN / "gradbus", "status", "--coordinator", rig.server.ready["address"]],
            capture_output=True, text=True, timeout=60, check=False,
            env=clean_environment(GRADBUS_TOKEN_FILE=str(rigs.TOKEN_FILE)),
        )  # fmt: skip
        (tmp_path / "end").touch()
        assert [rank.finish(60)[0] for rank in ranks] == [0, 0]
    assert shown.returncode == 0 and "shown/0" in shown.stdout, shown


def test_a_job_shorter_than_a_heartbeat_has_its_counters():
    with cluster(2, "--heartbeat-ms", "7000", "--lease-ms", "15000") as rig:
        assert [rank.finish()[0] for rank in rig.start_job(2, "red:x:1000:f32:sum")] == [0, 0]
        (job,) = rig.status()["jobs"]
    assert job["received_bytes"] == 2 * 4000, job  # 1000 of 4 bytes to each of two, by any algorithm
    assert [(rank["operations"], rank["bytes"]) for rank in job["ranks"]] == [(1, 4000)] * 2, job


@pytest.mark.parametrize("second", [(), ("--local-links=false",)], ids=["shared", "sockets"])
def test_agents_of_one_machine_share_memory_where_both_allow_it(second):
    with rigs.cluster(1) as rig:
        rig.start_agent("node-1", *second)
        for number in range(2):  # over links that the first job has measured, and over new ones
            ranks = rig.start_job(2, "red:x:100000:f32:sum", job=f"job-{number}")
            assert [rank.finish()[0] for rank in ranks] == [0, 0]
        carried = [agent["transport"] for agent in rig.status()["agents"]]
    for one in carried:
        assert one["sent_bytes"] >= 2 * 200_000, carried  # half of 100,000 floats, to one agent, in each job
        assert one["shared_bytes"] == (0 if second else one["sent_bytes"]), carried

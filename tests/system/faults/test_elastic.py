"""Agents that are killed and started again, and jobs that go on (docs/how-to/train-elastically.md).

Kills fall on lines that ranks print, so at no certain place of a step. Ranks wait for FOLDER/finish before
their last steps, so that none has ended when the last kill comes.
"""

import contextlib
import os
import pathlib
import random
import signal

import pytest
import rig as rigs
from conftest import RANKS, assert_all_ok, launched, start_ranks

pytestmark = pytest.mark.timeout(300)

GATE = 50  # as ranks/faults/restarts.py


@pytest.fixture(scope="module")
def newest():
    return str(rigs.REPOSITORY / ".venv/bin/python")


def start_again(rig, indices):
    """SIGKILL to all of them, then the same agents again at once."""
    for index in indices:
        rig.agents[index].kill()
    for index in indices:
        rig.agents[index].process.wait(rigs.DEADLINE_S)
        rig.start_agent(f"node-{index}")
        rig.agents[index] = rig.agents.pop()


def await_step(rank, number):
    """Until the rank has printed that step, after which others are."""
    lines = []
    for line in rank.process.stdout:
        lines.append(line)
        if line.split() == ["step", str(number)]:
            return
    pytest.fail(f"rank {rank.number} ended before step {number}: {ended(rank)}\n{''.join(lines)}")


def run_with_kills(rig, python, folder, kills, *words, size=4):
    """`kills`: [(step, indices of agents)], steps ascending. [(status, output)] of the ranks."""
    ranks = start_ranks(rig, python, "faults/restarts.py", size, *words, str(folder), GRADBUS_ELASTIC_TIMEOUT="100")
    for number, indices in kills:
        await_step(ranks[0], number)
        start_again(rig, indices)
    (folder / "finish").touch()
    return [ended(rank) for rank in ranks]


def ended(rank):
    """(exit status, all that it printed and await_step() did not read)."""
    output = rank.process.stdout.read()
    return rank.process.wait(rigs.DEADLINE_S), output


def some_kills(seed, agents, count=2):
    chance = random.Random(seed)
    steps = sorted(chance.sample(range(1, GATE), count))
    return [(step, [chance.randrange(agents)]) for step in steps]


@pytest.mark.parametrize("agents, kills", [
    (1, some_kills(1, 1)),
    (2, [(5, [0])]),  # rank 0's
    (2, [(18, [0, 1]), (19, [1])]),
    (3, some_kills(2, 3, 4)),
    (3, some_kills(3, 3, 4)),
    (3, [(7, [1, 2]), (30, [0, 1, 2])]),
], ids=str)
def test_every_sum_counts_once(newest, tmp_path, agents, kills):
    with rigs.cluster(agents) as rig:
        results = run_with_kills(rig, newest, tmp_path, kills, "plain")
        assert_all_ok(results)
        if agents > 1:  # else ranks may do without theirs: it is not needed for a step
            assert all("joins again: GB-" in output for _, output in results), results


@pytest.mark.parametrize("mode", ["sync", "delayed:k=1", "ps:sync", "ps:async", "localsgd:H=2", "gossip"])
def test_every_gradient_counts_once(newest, tmp_path, mode):
    with rigs.cluster(2, shards=2) as rig:
        assert_all_ok(run_with_kills(rig, newest, tmp_path, some_kills(mode, 2), "steps", mode))


def test_shards_that_are_lost(newest, tmp_path):
    """One that had no copy: what it held is in the commit."""
    with rigs.cluster(2, shards=2) as rig:
        ranks = start_ranks(rig, newest, "faults/restarts.py", 4, "steps", "ps:async,replicas=1", str(tmp_path),
                            GRADBUS_ELASTIC_TIMEOUT="100")  # fmt: skip
        await_step(ranks[0], 7)
        rig.shards[1].kill()
        rig.shards[1].process.wait(rigs.DEADLINE_S)
        rig.start_shard("shard-1")
        (tmp_path / "finish").touch()
        results = [ended(rank) for rank in ranks]
        assert_all_ok(results)
        assert all("joins again: GB-P103" in output for _, output in results), results


def test_parameters_are_those_of_the_commit_and_not_of_a_snapshot(newest, tmp_path):
    """restore=1 is for the start of the program."""
    with rigs.cluster(2) as rig:
        for name in ("shard-0", "shard-1"):
            rig.start_shard(name, "--snapshots", str(tmp_path / "snapshots"), "--snapshot-every", "0")
        for number, mode in enumerate(("ps:async", "ps:async,restore=1")):
            folder = tmp_path / str(number)
            folder.mkdir()
            ranks = rig.start_job(4, program=[newest, str(RANKS / "faults/restarts.py"), "steps", mode, str(folder)],
                                  env={"OMP_NUM_THREADS": "1", "GRADBUS_ELASTIC_TIMEOUT": "100"})  # fmt: skip
            if number == 1:
                await_step(ranks[0], 13)
                start_again(rig, [0])
            (folder / "finish").touch()
            assert_all_ok([ended(rank) for rank in ranks])


@pytest.mark.parametrize("mode", ["ps:async", "ps:sync"])
def test_all_shards_are_lost(newest, tmp_path, mode):
    """The ranks are back at once, and wait for a shard."""
    with rigs.cluster(2, shards=1) as rig:
        ranks = start_ranks(rig, newest, "faults/restarts.py", 4, "steps", mode, str(tmp_path),
                            GRADBUS_ELASTIC_TIMEOUT="100")  # fmt: skip
        await_step(ranks[0], 7)
        rig.shards[0].kill()
        rig.shards[0].process.wait(rigs.DEADLINE_S)
        assert any("joins again: GB-O91" in line for line in ranks[0].process.stdout), "it waited for no shard"
        rig.start_shard("shard-0")
        (tmp_path / "finish").touch()
        assert_all_ok([ended(rank) for rank in ranks])


@pytest.mark.parametrize("what", ["commits", "in_vain", "late"])
def test_without_a_real_loss(newest, tmp_path, what):
    with rigs.cluster(2) as rig:
        assert_all_ok([ended(rank) for rank in start_ranks(rig, newest, "faults/restarts.py", 3, what, str(tmp_path))])


@pytest.mark.parametrize("what", ["remembered", "digits"])
def test_the_same_bits_as_without_a_loss(python, tmp_path, what):
    ends = []
    for kills in ([], [*some_kills(4, 2, 1), (33, [0, 1])]):
        folder = tmp_path / str(len(kills))
        folder.mkdir()
        with rigs.cluster(2) as rig:
            results = run_with_kills(rig, python, folder, kills, what)
        assert_all_ok(results)
        assert all(("joins again" in output) == bool(kills) for _, output in results), results
        ends.append([output.splitlines()[-2] for _, output in results])
    assert ends[0] == ends[1] and ends[0][0].startswith("end "), ends


@pytest.mark.parametrize("mode, name, codec", [
    ("ps:async", "adam", []), ("ps:ssp", "sgd", []), ("ps:quorum,q=1", "adamw", []),
    ("ps:async,replicas=1", "adagrad", []), ("ps:async", "lamb", []),
    ("ps:async", "adam", ["fp16"]), ("ps:quorum,q=1", "sgd", ["topk:ratio=0.05,ef=residual"]),
    ("ps:async,replicas=1", "sgd", ["onebit"]), ("ps:quorum,q=1", "adamw", ["onebit"]),
])  # fmt: skip
def test_what_shards_remember_is_that_of_the_commit(newest, tmp_path, mode, name, codec):
    """Agents are lost, a shard that has no copy, all of them: the end has the same bits."""
    ends = []
    for kills in ([], [(5, [0]), (18, [1]), (39, [0, 1])]):
        folder = tmp_path / str(len(kills))
        folder.mkdir()
        with rigs.cluster(2, shards=2) as rig:
            results = run_with_kills(rig, newest, folder, kills, "kept", mode, name, *codec, size=5)
        assert_all_ok(results)
        assert all(("joins again" in output) == bool(kills) for _, output in results), results
        ends.append([output.splitlines()[-2] for _, output in results])
    assert ends[0] == ends[1] and ends[0][0].startswith("end "), ends


def test_what_a_lost_shard_remembered_is_in_the_commit(newest, tmp_path):
    with rigs.cluster(2) as rig:
        for name in ("shard-0", "shard-1"):
            rig.start_shard(name, "--snapshots", str(tmp_path / "snapshots"), "--snapshot-every", "1")
        ranks = start_ranks(rig, newest, "faults/restarts.py", 4, "kept", "ps:async,replicas=1", "adam", str(tmp_path),
                            GRADBUS_ELASTIC_TIMEOUT="100")  # fmt: skip
        await_step(ranks[0], 17)
        rig.shards[1].kill()
        rig.shards[1].process.wait(rigs.DEADLINE_S)
        await_step(ranks[0], 30)  # on the one that is left
        rig.start_shard("shard-1")
        start_again(rig, [1])
        (tmp_path / "finish").touch()
        results = [ended(rank) for rank in ranks]
        assert_all_ok(results)
        assert all("joins again: GB-P103" in output for _, output in results[1:]), results


def test_a_session_after_a_failed_one(newest, tmp_path):
    """What gradbus.elastic does is nothing that a program in C could not."""
    with rigs.cluster(2) as rig:
        ranks = start_ranks(rig, newest, "faults/restarts.py", 4, "again", str(tmp_path))
        await_step(ranks[0], 30)
        start_again(rig, [1])
        (tmp_path / "finish").touch()
        results = [ended(rank) for rank in ranks]
        assert_all_ok(results)
        assert ["lost A301" in output for _, output in results] == [False, False, True, True], results
        assert ["lost P10" in output for _, output in results] == [True, True, False, False], results


def test_a_loss_that_a_process_set_hears_of_by_a_rank_that_leaves_it(newest, tmp_path):
    with rigs.cluster(2) as rig:
        ranks = start_ranks(rig, newest, "faults/restarts.py", 4, "pair", str(tmp_path), GRADBUS_ELASTIC_TIMEOUT="100")
        for rank in ranks:
            await_step(rank, 1)
        start_again(rig, [1])
        results = [ended(rank) for rank in ranks]
        assert_all_ok(results)
        assert all("joins again: GB-P104" in output for _, output in results[:2]), results


def test_a_dead_rank_is_not_waited_for(newest, tmp_path):
    with rigs.cluster(2) as rig:
        ranks = start_ranks(rig, newest, "faults/restarts.py", 4, "plain", str(tmp_path))
        await_step(ranks[0], 9)
        ranks[3].process.kill()
        for status, output in [ended(rank) for rank in ranks[:3]]:
            assert status == 3 and "PeerLostError GB-P101" in output and "rank 3" in output, output


def test_an_agent_that_does_not_come_back(newest, tmp_path):
    with rigs.cluster(2) as rig:
        ranks = start_ranks(rig, newest, "faults/restarts.py", 4, "plain", str(tmp_path), GRADBUS_ELASTIC_TIMEOUT="2")
        await_step(ranks[0], 9)
        rig.agents[1].kill()
        for rank, (status, output) in enumerate([ended(rank) for rank in ranks]):
            assert status == 3 and "TimeoutError GB-M006" in output and "within 2 s" in output, output
            lost, answer = ("GB-P10", "2, 3 | next: ") if rank < 2 else ("GB-A301", "GB-A300")
            assert lost in output and answer in output, output


def test_an_agent_starts_where_its_predecessor_was_killed(newest, tmp_path):
    """The same socket and data address, at once, though processes still hold its connections."""
    with rigs.cluster(1) as rig:
        first = rig.start_agent("node-1")
        address = first.ready["address"]
        ranks = start_ranks(rig, newest, "faults/restarts.py", 4, "plain", str(tmp_path), GRADBUS_ELASTIC_TIMEOUT="100")
        for number in (5, 20):
            await_step(ranks[0], number)
            rig.agents[1].kill()
            rig.agents[1].process.wait(rigs.DEADLINE_S)
            rig.start_agent("node-1", "--bind", address)
            rig.agents[1] = rig.agents.pop()
            assert rig.agents[1].ready["address"] == address
        (tmp_path / "finish").touch()
        assert_all_ok([ended(rank) for rank in ranks])


# ---- gradbus run --restart-agents


def restarting(folder, *words):
    """Four ranks on two agents."""
    return launched(folder, "-np", "4", "--agents", "2", *words, OMP_NUM_THREADS="1")


def agent_of(process, name, but=None):
    """The pid of that embedded agent, once it runs; not `but`, which may be about to end."""
    found = []

    def runs():
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for child in children:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                words = pathlib.Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
                if int(child) != but and name.encode() in words:
                    found.append(int(child))
        return found

    rigs.wait_until(runs, what=name)
    return found[0]


def await_line(process, *words):
    assert any(line.split() == list(words) for line in process.stdout), words


def test_the_launcher_starts_agents_again(newest, tmp_path):
    command = [newest, str(RANKS / "faults/restarts.py"), "plain", str(tmp_path)]
    words = ["--restart-agents", "2", "--elastic-timeout", "100", "--", *command]
    with restarting(tmp_path, *words) as process:
        for step, agent in (("7", "agent-1"), ("23", "agent-0")):
            await_line(process, "[0]", "step", step)
            os.kill(agent_of(process, agent), signal.SIGKILL)
        (tmp_path / "finish").touch()
        rest = process.stdout.read()
        errors = (tmp_path / "errors").read_text()
        assert process.wait(rigs.DEADLINE_S) == 0, (rest, errors)
        assert all(f"[{rank}] ok\n" in rest for rank in range(4)), (rest, errors)
        assert "agent-0" in errors and "(0 more times)" in errors, errors


def test_the_launcher_starts_agents_so_many_times(newest, tmp_path):
    command = [newest, str(RANKS / "faults/restarts.py"), "plain", str(tmp_path)]
    with restarting(tmp_path, "--restart-agents", "1", "--elastic-timeout", "100", "--", *command) as process:
        killed = None
        for step in ("7", "23"):
            await_line(process, "[0]", "step", step)
            killed = agent_of(process, "agent-1", but=killed)
            os.kill(killed, signal.SIGKILL)
        rest, status = process.stdout.read(), process.wait(rigs.DEADLINE_S)
        errors = (tmp_path / "errors").read_text()
        assert status == 1 and "GB-A301 AGENT_LOST: embedded agent-1" in errors, (status, rest, errors)


def test_without_elastic_a_loss_ends_the_job(tmp_path):
    with restarting(tmp_path, "--restart-agents", "5", "--", str(rigs.BIN / "scripted_rank"),
                  "barrier", "loop:x:1000:600") as process:  # fmt: skip
        await_line(process, "[0]", "ok", "barrier")
        os.kill(agent_of(process, "agent-1"), signal.SIGKILL)
        rest, status = process.stdout.read(), process.wait(rigs.DEADLINE_S)
        assert status == 3 and "GB-A301" in rest and "GB-P10" in rest, (status, rest)

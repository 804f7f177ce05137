"""Tensors that are registered, used and unregistered: memory stays flat on ranks, agents and shards."""

import json
import pathlib
import re
import time

import pytest
import rig as rigs
from conftest import assert_all_ok, run_ranks, start_ranks

pytestmark = pytest.mark.timeout(240)


def segments_of(daemon):
    """Bytes of the jobs' shared segments that a daemon maps."""
    text = pathlib.Path(f"/proc/{daemon.pid}/maps").read_text()
    found = re.findall(r"^([0-9a-f]+)-([0-9a-f]+) .*memfd:gradbus:", text, re.M)
    return sum(int(end, 16) - int(begin, 16) for begin, end in found)


def sizes_of(output):
    """The line of JSON before "ok": [mapped, in memory] after each cycle."""
    return json.loads(output.strip().splitlines()[-2])


def assert_flat(results):
    assert_all_ok(results)
    for _, output in results:
        sizes = sizes_of(output)
        warm = sizes[len(sizes) // 4 :]
        # Sets of tensors that other ranks have not unregistered yet need a segment or two more, at some time or other;
        # without reuse the size of a set is added in each cycle.
        assert max(size for size, _ in sizes) <= warm[0][0] + (3 << 20), sizes
        assert max(resident for _, resident in sizes) <= max(size for size, _ in warm), sizes


@pytest.mark.parametrize("size", [1, 2, 4])
def test_memory_is_flat_over_200_cycles(two_agents, python, size):
    assert_flat(run_ranks(two_agents, python, "collectives/unregister.py", size, "cycles", "sync", "none", "200"))


@pytest.mark.parametrize(("mode", "compression"), [("sync", "topk:ratio=1"), ("delayed:k=2", "none"), ("sync", "fp16")])
def test_partitions_and_delay_slots_are_freed_with_their_tensor(two_agents, python, mode, compression):
    assert_flat(run_ranks(two_agents, python, "collectives/unregister.py", 2, "cycles", mode, compression, "40"))


def test_ranks_unregister_in_orders_of_their_own(two_agents, python):
    assert_all_ok(run_ranks(two_agents, python, "collectives/unregister.py", 4, "orders"))


@pytest.mark.parametrize("size", [1, 2])
def test_what_is_refused_says_why(two_agents, python, size):
    assert_all_ok(run_ranks(two_agents, python, "collectives/unregister.py", size, "errors"))


@pytest.mark.parametrize("size", [2, 4])
def test_names_of_operations(two_agents, python, size):
    assert_flat(run_ranks(two_agents, python, "collectives/unregister.py", size, "named"))


def test_what_was_measured_of_a_tensor_may_outlive_it(python):
    """The rig looks into the logs: an agent that looked for the tensor ended a turn, or the job, by GB-X001."""
    with rigs.cluster(2) as rig:
        assert_all_ok(run_ranks(rig, python, "collectives/unregister.py", 2, "gauged", "5"))


def test_an_array_outlives_its_tensor(two_agents, python):
    assert_all_ok(run_ranks(two_agents, python, "collectives/unregister.py", 2, "views"))


def test_a_rank_that_left_is_not_waited_for(two_agents, python):
    assert_all_ok(run_ranks(two_agents, python, "collectives/unregister.py", 3, "leaves"))


def test_tensors_may_go_before_the_links_are_up(two_agents, python):
    """What agents have to tell each other about them is not kept: it filled a queue, and ended the agent."""
    assert_all_ok(run_ranks(two_agents, python, "collectives/unregister.py", 2, "unused"))
    assert all(agent.alive() for agent in two_agents.agents)


@pytest.mark.parametrize("mode", ["ps:sync", "ps:async,optimizer=sgd,replicas=2"])
def test_shards_forget_tensors(python, mode):
    with rigs.cluster(2) as rig:
        for name in ("shard-a", "shard-b"):
            rig.start_shard(name)
        assert_flat(run_ranks(rig, python, "collectives/unregister.py", 2, "cycles", mode, "none", "30"))
        assert all(daemon.alive() for daemon in (*rig.agents, *rig.shards))


def own_memory(daemon):
    """Bytes that the daemon has for itself: not those of shared segments."""
    text = pathlib.Path(f"/proc/{daemon.pid}/status").read_text()
    return int(re.search(r"RssAnon:\s+(\d+) kB", text)[1]) * 1024


@pytest.mark.parametrize(("mode", "compression"), [("sync", "topk:ratio=1"), ("ps:async,optimizer=adam", "none")])
def test_daemons_free_what_a_tensor_needed(python, mode, compression):
    """Residuals, payloads and the state of optimizers are the daemons' own memory: half a MiB or more in each cycle."""
    with rigs.cluster(2, shards=1 if mode.startswith("ps") else 0) as rig:
        daemons = [*rig.agents, *rig.shards]
        ranks = start_ranks(rig, python, "collectives/unregister.py", 2, "cycles", mode, compression, "300")
        samples = []
        while any(rank.process.poll() is None for rank in ranks):
            samples.append([own_memory(daemon) for daemon in daemons])
            time.sleep(0.02)
        assert_all_ok([rank.finish() for rank in ranks])
        half = len(samples) // 2
        for number, daemon in enumerate(daemons):
            early, late = (max(row[number] for row in part) for part in (samples[:half], samples[half:]))
            assert late < early + (16 << 20), (daemon.process.args[0], early, late)  # a leak adds 75 MiB


def test_sixty_models_fit_where_four_do(python):
    with rigs.cluster(1, "--shm-bytes-max", str(64 << 20)) as rig:
        results = run_ranks(rig, python, "collectives/unregister.py", 2, "models")
    assert_all_ok(results)


def test_agents_keep_nothing_of_jobs_that_ended(two_agents, python):
    assert_all_ok(run_ranks(two_agents, python, "collectives/unregister.py", 2, "orders"))
    deadline = time.monotonic() + 10
    while any(segments_of(agent) for agent in two_agents.agents) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [segments_of(agent) for agent in two_agents.agents] == [0, 0]

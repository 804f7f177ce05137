"""Holders of the cluster token that send nonsense, or proofs that are no good: healthy nodes and jobs go on."""

import re
import subprocess

import pytest
import rig as rigs


def attack(rig, verb, count, seed=1):
    """Runs hostile_calls beside a job that checks every sum; its output. All daemons live and work afterwards."""
    neighbours = rig.start_job(2, "loop:y:1000:60:1", job="neighbour")
    rig.wait_until_running("neighbour")
    command = [rigs.BIN / "hostile_calls", rig.server.ready["address"], verb, str(seed), str(count)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * rigs.DEADLINE_S, check=False)
    for daemon in [*rig.agents, rig.server]:
        assert daemon.alive() and "GB-X001" not in daemon.text(), daemon.text()[-2000:]
    assert done.returncode == 0 and done.stdout.endswith(f"done {count}\n"), done
    assert [rank.process.poll() for rank in neighbours] == [None, None], neighbours[0].finish()
    assert [rank.finish()[0] for rank in rig.start_job(4, "red:x:1000:i64:sum", job="after")] == [0] * 4
    return done.stdout


@pytest.mark.parametrize("verb, count", [("calls", 60), ("streams", 150)])
def test_messages_of_every_kind(verb, count):
    """Made from the descriptors of the service: every method, every message of an agent, every field."""
    with rigs.cluster(2) as rig:
        output = attack(rig, verb, count)
        if verb == "calls":  # all but the stream's answer that a message is too large
            refused, methods = map(int, re.search(r"refused (\d+) of (\d+)", output).groups())
            assert refused >= methods - 1, output


def test_proofs_that_are_no_good():
    """Used twice, of another call or request, changed, cut: none is accepted."""
    with rigs.cluster(2) as rig:
        output = attack(rig, "proofs", 30)
        assert re.search(r"^accepted 0$", output, re.MULTILINE), output


def test_frames_of_a_node_that_means_harm():
    """It has the token and the keys of its jobs' links: only these jobs end, on agents and shards."""
    with rigs.cluster(1, shards=2) as rig:
        neighbours = rig.start_job(2, "loop:y:1000:60:1", job="neighbour")
        rig.wait_until_running("neighbour")
        command = [rigs.BIN / "hostile_peer", rig.server.ready["address"], "1", "15", rig.agents[0].ready["socket"]]
        done = subprocess.run(command, capture_output=True, text=True, timeout=2 * rigs.DEADLINE_S, check=False)
        for daemon in [*rig.agents, *rig.shards, rig.server]:
            assert daemon.alive() and "GB-X001" not in daemon.text(), daemon.text()[-2000:]
        assert done.returncode == 0 and done.stdout.endswith("done 15\n"), done
        assert int(re.search(r"sent (\d+)", done.stdout)[1]) >= 10, done
        assert [rank.process.poll() for rank in neighbours] == [None, None], neighbours[0].finish()
        assert [rank.finish()[0] for rank in rig.start_job(4, "red:x:1000:i64:sum", job="after")] == [0] * 4

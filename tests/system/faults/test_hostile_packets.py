"""Clients that send wrong packets and questions: each costs its own job, never a daemon, a node or a neighbour."""

import json
import subprocess

import pytest
import rig as rigs

LAYERS = [{"name": f"layer{i}", "elements": 1000 + i, "dtype": "f32", "forward_us": 10.0, "backward_us": 20.0}
          for i in range(6)]
QUESTION = {"want": "plan", "schedule": "auto", "forward": True, "workload": {"layers": LAYERS},
            "network": {"startup_us": 100.0, "byte_ns": 0.1}}


def attack(rig, verb, count, sockets, *files, seed=1):
    """Runs hostile_packets beside a job that checks every sum; its output. All daemons live and work afterwards."""
    neighbours = rig.start_job(2, "loop:y:1000:60:1", job="neighbour")
    rig.wait_until_running("neighbour")
    command = [rigs.BIN / "hostile_packets", verb, str(seed), str(count), *sockets, *files]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * rigs.DEADLINE_S, check=False)
    for daemon in [*rig.agents, *rig.shards, rig.server]:
        assert daemon.alive() and "GB-X001" not in daemon.text(), daemon.text()[-2000:]
    assert done.returncode == 0 and done.stdout.endswith(f"done {count}\n"), done
    assert [rank.process.poll() for rank in neighbours] == [None, None], neighbours[0].finish()
    assert [rank.finish()[0] for rank in rig.start_job(4, "red:x:1000:i64:sum", job="after")] == [0] * 4
    return done.stdout


@pytest.mark.parametrize("agents", [(0, 0), (0, 1)])
def test_packets_with_wrong_fields(agents):
    """Registrations of all kinds and sizes up to 2^64, reports, questions and device trials."""
    with rigs.cluster(2, "--shm-bytes-max", str(256 << 20), shards=1) as rig:
        attack(rig, "packets", 60, [rig.agents[index].ready["socket"] for index in agents], seed=agents[1])


def test_first_packets_that_are_wrong():
    """Joins with any name, rank and size, or cut ones."""
    with rigs.cluster(1) as rig:
        before = rig.agents[0].open_files()
        attack(rig, "joins", 1000, [rig.agents[0].ready["socket"]])
        rigs.wait_until(lambda: rig.agents[0].open_files() <= before + 8, what="the descriptors to be closed")


def test_questions_that_are_wrong(tmp_path):
    """Each gets an answer: 500,000 levels, half of a character, cut short, times that add up to nothing."""
    levels = 500_000
    texts = [
        json.dumps(QUESTION),
        '{"want": "plan", "workload": %s%s}' % ("[" * levels, "]" * levels),
        "[" * 2 * levels,
        '{"a":' * (levels // 3) + "0" + "}" * (levels // 3),
        json.dumps({**QUESTION, "schedule": "x" * 39 + "é"}, ensure_ascii=False),
        json.dumps({"want": "recall", "key": "é" * 60}, ensure_ascii=False),
        json.dumps(QUESTION)[:-5],
        json.dumps({**QUESTION, "workload": {"layers": [{**LAYERS[0], "elements": 1 << 38, "backward_us": 1e8}]},
                    "network": {"startup_us": 1e-6, "byte_ns": 0}}),
    ]
    files = []
    for number, text in enumerate(texts):
        files.append(tmp_path / f"{number}.json")
        files[-1].write_text(text)
    with rigs.cluster(1) as rig:
        lines = attack(rig, "ask", 100, [rig.agents[0].ready["socket"]], *files).splitlines()
        assert len(lines) == len(texts) + 2 and lines[-2] == "answered 100", lines
        assert all(lines[number].startswith('{"compressed":') for number in (0, 7)), lines
        assert lines[5] == '{"value":""}', lines
        for number in (1, 2, 3, 4, 6):
            assert "GB-F10" in lines[number], lines[number]

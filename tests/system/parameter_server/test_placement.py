"""Shards beside agents and alone, on links of different rates: what each holds, counted on real daemons.

Needs root, as all tests of --link.
"""

import json
import os
import subprocess

import fork_server
import pytest
import rig as rigs
from conftest import RANKS, clean_environment

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.skipif(bool(rigs.why_no_namespaces()), reason=f"no namespaces here: {rigs.why_no_namespaces()}"),
]
PYTHON = str(rigs.REPOSITORY / ".venv/bin/python")
LIBRARY = str(rigs.BIN.parent / "lib/libgradbus.so")
GRADBUS = str(rigs.BIN / "gradbus")

# Worked out by hand, in the time that a 1 Gbit/s link needs for all gradients. Two agents: what is on an
# agent's link takes 1 wherever the parts are, the shard alone 2 x / 0.5 <= 1. Three: beside an agent 1 + x,
# alone 3 y / 2, the same for 2 x + y = 1.
SLOW_ALONE = (["--agents", "2", "--shards", "2", "--shards-on", "agent-0,own", "--link-of", "shard-1=500mbit"],
              {"shard-0": (3 / 4, "agent-0"), "shard-1": (1 / 4, "")})  # fmt: skip
MIXED = (["--agents", "3", "--shards", "3", "--shards-on", "agent-0,agent-1,own", "--link-of", "shard-2=2gbit"],
         {"shard-0": (1 / 8, "agent-0"), "shard-1": (1 / 8, "agent-1"), "shard-2": (3 / 4, "")})  # fmt: skip
BESIDE_EACH = (["--agents", "2", "--shards", "2", "--shards-on", "agents"],
               {"shard-0": (1 / 2, "agent-0"), "shard-1": (1 / 2, "agent-1")})  # fmt: skip


def run_job(place, mode, steps=4, before=0, more=()):
    """The shards as the coordinator shows them in the end; the ranks check all values."""
    ranks = place[0][1]
    words = [GRADBUS, "run", "-np", ranks, *place[0], "--link", "1gbit", *more, "--no-prefix", "--", PYTHON,
             str(RANKS / "parameter_server/placed.py"), LIBRARY, GRADBUS, mode, str(steps), str(before)]  # fmt: skip
    done = fork_server.run(words, env=clean_environment(), timeout=200, check=False, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
    assert done.returncode == 0 and done.stdout.count("ok\n") == int(ranks), done.stdout
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("["))
    return json.loads(line)


# Expect: sums are exact, and each shard has received its part of all bytes, to a chunk.
@pytest.mark.parametrize("mode", ["ps:sync", "ps:async,lr=1,replicas=1"])
@pytest.mark.parametrize("place", [SLOW_ALONE, MIXED, BESIDE_EACH], ids=["slow", "mixed", "beside"])
def test_each_shard_gets_its_part(place, mode):
    shards = run_job(place, mode)
    received = {shard["shard"]: shard["received_bytes"] for shard in shards}
    for shard in shards:
        part, beside = place[1][shard["shard"]]
        assert shard["beside"] == beside, shards
        assert abs(shard["share"] - part) < 1e-9, shards
        assert abs(received[shard["shard"]] / sum(received.values()) - part) < 0.03, (shards, part)


@pytest.mark.parametrize("mode", ["ps:sync,replicas=2", "ps:async,lr=1,replicas=2"])
def test_copies_of_unequal_parts(mode):
    run_job(SLOW_ALONE, mode)


# Expect: what shards of some parts have written, others of other parts go on from.
def test_a_job_goes_on_with_other_parts(tmp_path):
    keep = ("--job", "train", "--snapshots", str(tmp_path))
    two_agents = (["--agents", "2", "--shards", "3", "--shards-on", "own,agent-1,own", "--link-of", "shard-2=250mbit"],)
    run_job(SLOW_ALONE, "ps:async,lr=1", 3, 0, keep)
    run_job(two_agents, "ps:async,lr=1,restore=1", 2, 3, keep)
    run_job(BESIDE_EACH, "ps:async,lr=1,restore=1", 2, 5, keep)


def refusal(*words):
    command = [GRADBUS, "run", "-np", "2", "--agents", "2", *words, "--", "true"]
    done = fork_server.run(command, env={**os.environ, **clean_environment()}, timeout=60, check=False, text=True,
                          capture_output=True)  # fmt: skip
    assert done.returncode != 0 and "GB-H200" in done.stderr, done.stderr
    return done.stderr


def test_mistakes_are_named():
    link = ("--shards", "2", "--link", "1gbit")
    assert "did you mean: agent-1" in refusal(*link, "--shards-on", "own,agnet-1")
    assert "did you mean: agents" in refusal(*link, "--shards-on", "agnets")
    assert "names 1 place for 2 shards" in refusal(*link, "--shards-on", "agent-0")
    assert "there are: own, agent-0, agent-1" in refusal(*link, "--shards-on", "own,agent-7")
    assert "add --link RATE" in refusal("--shards", "2", "--shards-on", "agents")
    assert "add --shards N" in refusal("--link", "1gbit", "--shards-on", "agents")
    assert "did you mean: shard-1" in refusal(*link, "--link-of", "shrad-1=1gbit")
    assert "--link-of agent-0=500mbit" in refusal(*link, "--shards-on", "agents", "--link-of", "shard-0=500mbit")
    assert "--link-of shard-0=500mbit" in refusal(*link, "--link-of", "shard-0")
    assert "--link's rate is \"fast\"" in refusal(*link, "--link-of", "shard-0=fast")
    assert "add --link RATE" in refusal("--shards", "1", "--link-of", "shard-0=1gbit")

"""What shards do is what their own log says: `--log-level trace` has the order in which pushes count, and a
replay of it in NumPy, with the gradients that ranks have pushed, ends with the same bits."""

import collections
import re

import numpy
import pytest
import rig as rigs
from conftest import RANKS, assert_all_ok

PYTHON = str(rigs.REPOSITORY / ".venv/bin/python")
STEPS = 20
DEADLINE_S = 120
LINE = re.compile(r' T gradbus-shard: job "[^"]*": tensor "[^"]*" from element (\d+): (.*)')
f32 = numpy.float32


def logs_of(text):
    """First element of a chunk -> what happened to it, in its order."""
    chunks = collections.defaultdict(list)
    for first, what in LINE.findall(text):
        chunks[int(first)].append(what)
    return chunks


class Sgd:
    """torch.optim.SGD with Nesterov's momentum, every operation rounded to float32; options as replay.py's."""

    def step(self, number, rate, gradient, parameters):
        gradient = gradient + f32(0.01) * parameters
        self.first = gradient if number == 1 else f32(0.9) * self.first + gradient
        return parameters - rate * (gradient + f32(0.9) * self.first)


class Adam:
    """Kingma and Ba 2015, as torch.optim has it; corrections of the bias in float64."""

    first = second = f32(0)

    def step(self, number, rate, gradient, parameters):
        gradient = gradient + f32(0.01) * parameters
        one, two = 0.8, 0.95
        self.first = f32(one) * self.first + f32(1 - one) * gradient
        self.second = f32(two) * self.second + f32(1 - two) * gradient * gradient
        size = f32(float(rate) / (1 - one**number))
        root = f32(numpy.sqrt(1 - two**number))
        return parameters - size * self.first / (numpy.sqrt(self.second) / root + f32(1e-6))


OPTIMIZERS = {"sgd": Sgd, "adam": Adam}


def replayed(log, optimizer, begin, gradients):
    """A chunk at the end. `gradients`: by agent, of each step; the push before brought or got the parameters."""
    parameters, waiting, steps, taken = begin, [], 0, [0] * len(gradients)
    assert log[0] == "set by agent 0"
    for what in log[1:]:
        if found := re.fullmatch(r"push (\d+) of agent (\d+)", what):
            number, agent = map(int, found.groups())
            assert number == taken[agent] + 2, what
            waiting.append(gradients[agent][taken[agent]])
            taken[agent] += 1
            continue
        number, rate = re.fullmatch(r"step (\d+), learning rate (\S+)", what).groups()
        steps += 1
        assert int(number) == steps, what
        mean = f32(1) / f32(len(waiting)) * sum(waiting[1:], start=waiting[0])
        parameters = optimizer.step(steps, f32(rate), mean, parameters)
        waiting = []
    assert taken == [STEPS] * len(gradients), "each push counts once"
    return parameters


def check(logs, folder, nodes, name, copies):
    begin, end = (numpy.load(folder / f"{what}.npy").reshape(-1) for what in ("begin", "end"))
    gradients = [
        f32(1) / f32(len(ranks)) * sum(numpy.load(folder / f"gradients-{rank}.npy") for rank in ranks)
        for ranks in nodes
    ]
    gradients = [values.reshape(STEPS, -1) for values in gradients]
    firsts = sorted({first for log in logs for first in log})
    assert len(firsts) > 1 and firsts[0] == 0
    for first, behind in zip(firsts, [*firsts[1:], len(end)], strict=True):
        holders = [log[first] for log in logs if first in log]
        assert len(holders) == copies and all(log == holders[0] for log in holders)
        mine = [values[:, first:behind] for values in gradients]
        found = replayed(holders[0], OPTIMIZERS[name](), begin[first:behind], mine)
        assert numpy.array_equal(found, end[first:behind]), (first, numpy.abs(found - end[first:behind]).max())


@pytest.mark.parametrize(
    "mode, name",
    [
        ("ps:async,replicas=1", "sgd"),
        ("ps:async", "adam"),
        ("ps:ssp,max_staleness=3", "sgd"),
        ("ps:quorum,q=2", "sgd"),
        ("ps:quorum,q=2,replicas=1", "adam"),
    ],
)
def test_a_replay_of_the_log_has_the_same_bits(tmp_path, mode, name):
    with rigs.cluster(3) as rig:
        for shard in ("shard-0", "shard-1"):
            rig.start_shard(shard, "--log-level", "trace")
        program = [PYTHON, str(RANKS / "parameter_server/replay.py"), mode, name, str(STEPS), str(tmp_path)]
        ranks = rig.start_job(4, program=program, env={"OMP_NUM_THREADS": "1"})
        assert_all_ok([rank.finish(DEADLINE_S) for rank in ranks])
        logs = [logs_of(shard.text()) for shard in rig.shards]
    check(logs, tmp_path, [[0, 1], [2], [3]], name, copies=1 if "replicas=1" in mode else 2)

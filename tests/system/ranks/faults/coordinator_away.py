"""One rank whose coordinator is killed and started anew.

    coordinator_away.py shards MODE FOLDER   integers as gradients, before and after; new tensors after
    coordinator_away.py backups MODE FOLDER  the same without new tensors, where the test kills a shard
    coordinator_away.py elastic FOLDER       gradbus.elastic, begun while there is no coordinator

Makes FOLDER/begun-RANK, waits for FOLDER/go, and ends with "ok".
"""

import pathlib
import sys
import time

import gradbus.torch as gradbus
import torch
from two_parameters import SHAPE, make, step


def wait_for_go(folder):
    (folder / f"begun-{gradbus.rank()}").touch()
    while not (folder / "go").exists():
        time.sleep(0.01)


def make_other(mode):
    """New parameters, so new tensors on the shards."""
    weight = torch.nn.Parameter(torch.zeros(SHAPE))
    bias = torch.nn.Parameter(torch.zeros(5))
    plain = torch.optim.SGD([weight, bias], lr=1.0)
    named = [("other.weight", weight), ("other.bias", bias)]
    return weight, bias, gradbus.DistributedOptimizer(plain, named, mode=mode)


def exchange(parameters, steps):
    """Integers as gradients: the sums are exact, in any order of the nodes."""
    for _ in range(steps):
        step(parameters, torch.full(SHAPE, float(gradbus.rank() + 1)))
    parameters[2].flush()


def wanted(mode, steps):
    total = -sum(rank + 1 for rank in range(gradbus.size())) * steps
    return total / gradbus.size() * (1 if mode == "ps:sync" else gradbus.cross_size())


def shards(mode, folder):
    gradbus.init()
    first = make(mode)
    exchange(first, 3)
    wait_for_go(folder)
    exchange(first, 3)
    second = make_other(mode)
    exchange(second, 4)
    for weight, steps in ((first[0], 6), (second[0], 4)):
        assert torch.equal(weight.detach(), torch.full(SHAPE, float(wanted(mode, steps)))), (weight, steps)


def backups(mode, folder):
    gradbus.init()
    parameters = make(mode)
    exchange(parameters, 3)
    wait_for_go(folder)
    exchange(parameters, 6)
    weight = parameters[0]
    assert torch.equal(weight.detach(), torch.full(SHAPE, float(wanted(mode.split(",")[0], 9)))), weight


def elastic(folder):
    @gradbus.elastic.run
    def count(state):
        while state.step < 3:
            gradbus.allreduce(torch.ones(3), name=f"step-{state.step}")
            state.step += 1
            state.commit()
            if state.step == 2:
                wait_for_go(folder)
        return state.step

    assert count(gradbus.elastic.State(step=0)) == 3


if __name__ == "__main__":
    kind, *words, where = sys.argv[1:]
    {"shards": shards, "backups": backups, "elastic": elastic}[kind](*words, pathlib.Path(where))
    print("ok")

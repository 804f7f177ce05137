"""One rank of a job whose shards come and go; the test says in a file what to do after every few steps.

    resharding.py counted FILE MODE [COMPRESSION]   integers: every rank's every gradient arrives exactly once
    resharding.py whole FILE              the same of tensors that are stepped on as a whole
    resharding.py optimizer FILE NAME     one rank: what the shards' optimizer remembers moves along
    resharding.py elastic FILE            counted, in a job that outlives its agents

FILE has one word: "steps", "fences" (a flush after every few steps) or "stop". Rank r counts its fences in
FILE.r.
"""

import itertools
import pathlib
import sys
import time

import gradbus.torch as gradbus
import torch

SHAPE = (700, 300)
STEPS = 4  # between two looks at the file
WORDS = ("steps", "fences", "stop")
OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    "adam": (torch.optim.Adam, {"betas": (0.8, 0.95), "eps": 1e-6}),
}


def make(mode, kind, lr, start, compression=None, **options):
    weight = torch.nn.Parameter(start.clone())
    bias = torch.nn.Parameter(torch.zeros(3))
    plain = kind([weight, bias], lr=lr, **options)
    named = [("weight", weight), ("bias", bias)]
    return weight, bias, plain if mode is None else gradbus.DistributedOptimizer(
        plain, named, mode=mode, compression=compression)


def step(parameters, gradient, bias_gradient):
    weight, bias, optimizer = parameters
    optimizer.zero_grad()
    ((weight * gradient).sum() + bias.sum() * bias_gradient).backward()
    optimizer.step()


_fences = itertools.count(1)


def goes_on(optimizer, file):
    """What the file says, to all ranks alike."""
    word = WORDS.index(pathlib.Path(file).read_text()) if gradbus.rank() == 0 else 0
    word = int(gradbus.broadcast(torch.tensor([word]), root_rank=0, name="word").item())
    if word > 0:
        optimizer.flush()
        pathlib.Path(f"{file}.{gradbus.rank()}").write_text(str(next(_fences)))
    return word < 2


def gradient_of(rank, number):
    """Integers of which the mean of two or three is one, too."""
    return 6.0 * (rank + 1 + number % 5)


NODES = [[0, 1], [2]]  # ranks


def means_of(number):
    """By node: the step that it asks for."""
    return [sum(gradient_of(rank, number) for rank in node) / len(node) for node in NODES]


def assert_filled(parameters, value):
    for parameter in parameters:
        assert torch.equal(parameter.detach(), torch.full_like(parameter, value)), (parameter, value)


def change_of(mode, number):
    """What a step changes with lr=1."""
    if mode.startswith("ps:sync"):
        return sum(gradient_of(rank, number) for rank in range(3)) / 3
    return sum(means_of(number))


def counted(file, mode, compression=None):
    parameters = make(mode, torch.optim.SGD, 1.0, torch.zeros(SHAPE), compression)
    weight, bias, optimizer = parameters
    wanted, number = 0.0, 0
    while True:
        for _ in range(STEPS):
            value = gradient_of(gradbus.rank(), number)
            step(parameters, torch.full(SHAPE, value), value)
            wanted -= change_of(mode, number)
            number += 1
            time.sleep(0.005)
        if not goes_on(optimizer, file):
            break
    assert_filled([weight, bias], wanted)


def whole(file):
    """A step of lamb on elements that are alike, with gradients that never change, takes lr of each."""
    rate, start, steps = 0.001, 1000.0, 0
    parameters = make("ps:async,optimizer=lamb", torch.optim.SGD, rate, torch.full(SHAPE, start))
    weight, _, optimizer = parameters
    while True:
        for _ in range(STEPS):
            step(parameters, torch.full(SHAPE, 6.0), 6.0)
            steps += len(NODES)
            time.sleep(0.005)
        if not goes_on(optimizer, file):
            break
    wanted = torch.full(SHAPE, start * (1 - rate) ** steps)
    assert torch.allclose(weight.detach(), wanted, rtol=rate / 2), (weight, wanted)


def elastic(file):
    @gradbus.elastic.run
    def train(state):
        while not state.done:
            value = gradient_of(gradbus.rank(), state.step)
            step(parameters, torch.full(SHAPE, value), value)
            state.step += 1
            time.sleep(0.005)
            if state.step % STEPS == 0:
                state.done = not goes_on(parameters[2], file)
                state.commit()

    parameters = make("ps:async", torch.optim.SGD, 1.0, torch.zeros(SHAPE))
    model = torch.nn.ParameterList(parameters[:2])
    state = gradbus.ElasticState(model=model, optimizer=parameters[2], step=0, done=False)
    train(state)
    assert_filled(parameters[:2], -sum(sum(means_of(number)) for number in range(state.step)))


def optimizer(file, name):
    kind, options = OPTIMIZERS[name]
    random = torch.Generator().manual_seed(5)
    start = torch.randn(SHAPE, generator=random)
    parameters = make("ps:async", kind, 0.1, start, **options)
    alone = make(None, kind, 0.1, start, **options)
    while True:
        for _ in range(STEPS):
            gradient = torch.randn(SHAPE, generator=random)
            for of in (parameters, alone):
                step(of, gradient, 1.0)
            time.sleep(0.005)
        if not goes_on(parameters[2], file):
            break
    for here, there in zip(parameters[:2], alone[:2], strict=True):
        assert torch.allclose(here.detach(), there.detach(), rtol=1e-4, atol=1e-5), (here, there)


def main():
    gradbus.init()
    commands = {"counted": counted, "whole": whole, "optimizer": optimizer, "elastic": elastic}
    commands[sys.argv[1]](*sys.argv[2:])
    gradbus.shutdown()
    print("ok")


if __name__ == "__main__":
    main()

"""The modes of parameters as their papers have them: all ranks in one process, for local_modes.py."""

import gradbus.torch as gradbus
import torch

# Three thirds of 32 elements, so that three fragments have two parameters each.
SHAPES = {"a": (6, 4), "b": (8,), "c": (4, 4), "d": (2, 4, 2), "e": (30,), "f": (2,)}
THIRDS = [["a", "b"], ["c", "d"], ["e", "f"]]
INNER = {"lr": 0.125, "momentum": 0.5}


def initial():
    generator = torch.Generator().manual_seed(7)
    return {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}


def parameters():
    return {name: torch.nn.Parameter(value) for name, value in initial().items()}


def loss_of(weights, rank, step):
    """Each rank has a minimum of its own, which moves."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    targets = {n: torch.randn(w.shape, generator=generator) for n, w in sorted(weights.items())}
    return sum(((w.float() - targets[n]) ** 2).sum() / 2 for n, w in sorted(weights.items()))


def step(weights, optimizer, number, rank=None):
    """One inner step, of this rank where none is given."""
    optimizer.zero_grad()
    loss_of(weights, gradbus.rank() if rank is None else rank, number).backward()
    optimizer.step()


def options_of(mode):
    pairs = [pair.split("=") for pair in mode.partition(":")[2].split(",") if pair]
    return {name: float(value) for name, value in pairs}


class Simulation:
    """All ranks of Streaming DiLoCo, with torch's SGD as the outer optimizer of each fragment."""

    def __init__(self, period, lr, momentum, fragments, overlap):
        self.weights = [parameters() for _ in range(gradbus.size())]
        self.inner = [torch.optim.SGD(weights.values(), **INNER) for weights in self.weights]
        self.common = parameters()
        self.period, self.overlap, self.fragments = period, overlap, fragments
        self.outer = [
            torch.optim.SGD([self.common[n] for n in names], lr, momentum, nesterov=momentum > 0)
            for names in fragments
        ]
        self.flying = {}  # fragment -> (step at which it lands, means, snapshots)
        self.since = [0] * len(fragments)
        self.number = 0

    def step(self, data):
        for rank, (weights, inner) in enumerate(zip(self.weights, self.inner)):
            step(weights, inner, data, rank)
        self.number += 1
        for index in range(len(self.fragments)):
            self.since[index] += 1
            self.land(index)
            if (self.number - (index + 1) * self.period // len(self.fragments)) % self.period == 0:
                self.take_off(index, self.number + self.overlap)
                self.land(index)

    def take_off(self, index, due):
        names = self.fragments[index]
        snapshots = [{n: weights[n].detach().clone() for n in names} for weights in self.weights]
        means = {n: sum(self.common[n] - s[n] for s in snapshots) / len(snapshots) for n in names}
        self.flying[index] = (due, means, snapshots)
        self.since[index] = 0

    @torch.no_grad()
    def land(self, index, anyway=False):
        if index not in self.flying or (self.flying[index][0] > self.number and not anyway):
            return 0
        _, means, snapshots = self.flying.pop(index)
        for name, mean in means.items():
            self.common[name].grad = mean.detach()
        self.outer[index].step()
        for weights, snapshot in zip(self.weights, snapshots):
            for name in self.fragments[index]:
                weights[name].copy_(self.common[name] + (weights[name] - snapshot[name]))
        return 1

    def flush(self):
        every = range(len(self.fragments))
        landed = sum(self.land(index, anyway=True) for index in every)
        for index in every:
            if self.since[index]:
                self.take_off(index, self.number)
        self.number = 0
        return landed + sum(self.land(index, anyway=True) for index in every)


class PlainLocalSgd:
    """Stich 2019: every H steps all ranks have the mean of their parameters."""

    def __init__(self, period):
        self.weights = [parameters() for _ in range(gradbus.size())]
        self.inner = [torch.optim.SGD(weights.values(), **INNER) for weights in self.weights]
        self.period, self.number = period, 0

    def step(self, data):
        for rank, (weights, inner) in enumerate(zip(self.weights, self.inner)):
            step(weights, inner, data, rank)
        self.number += 1
        if self.number % self.period == 0:
            self.average()

    @torch.no_grad()
    def average(self):
        for name in SHAPES:
            mean = sum(weights[name] for weights in self.weights) / len(self.weights)
            for weights in self.weights:
                weights[name].copy_(mean)

    def flush(self):
        rest = self.number % self.period
        self.number = 0
        if rest:
            self.average()
        return int(rest > 0)


def simulation_of(mode):
    options = options_of(mode)
    period = int(options["H"])
    if mode.startswith("localsgd"):
        return PlainLocalSgd(period)
    fragments = {1: [list(SHAPES)], 3: THIRDS}[int(options.get("fragments", 1))]
    lr, momentum = options.get("outer_lr", 0.7), options.get("outer_momentum", 0.9)
    return Simulation(period, lr, momentum, fragments, int(options.get("overlap", 0)))

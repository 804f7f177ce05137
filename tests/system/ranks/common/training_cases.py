"""Trainings that are run twice: in one process on whole batches, and on ranks that have a part of each.

A case is a function of a Training; it returns a module. Ranks must end with the parameters and buffers of one
process, and with the same bits.
"""

import traceback

import gradbus.torch as gradbus
import torch
import torch.nn as nn
import torch.nn.functional as F

CASES = {}
TOLERANCE = 1e-4  # of the largest value of a tensor


def case(function=None, name=None, tolerance=TOLERANCE):
    if function is None:
        return lambda f: case(f, name, tolerance)
    CASES[name or function.__name__] = (function, tolerance)
    return function


def sgd(model, **options):
    """With momentum."""
    return torch.optim.SGD(model.parameters(), 0.1, **{"momentum": 0.9, **options})


def step(model, optimizer, x, y):
    """The usual one."""
    optimizer.zero_grad()
    F.mse_loss(model(x), y).backward()
    optimizer.step()


def mlp():
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3))


class Training:
    """One process, or this rank."""

    def __init__(self, distributed):
        self.distributed = distributed

    def part(self, *tensors):
        """Of a batch."""
        if self.distributed:
            rank, size = gradbus.rank(), gradbus.size()
            tensors = [t[len(t) * rank // size : len(t) * (rank + 1) // size] for t in tensors]
        return tensors[0] if len(tensors) == 1 else tensors

    def wrap(self, optimizer, named, **options):
        if not self.distributed:
            return optimizer
        named = named.named_parameters() if isinstance(named, nn.Module) else named
        return gradbus.DistributedOptimizer(optimizer, named_parameters=list(named), **options)

    def mean(self, value):
        return gradbus.allreduce(value.detach()) if self.distributed else value.detach()

    def batches(self, count=6, shape=(8, 6), whole=False):
        generator = torch.Generator().manual_seed(1)
        for _ in range(count):
            x = torch.randn(*shape, generator=generator)
            y = torch.randn(shape[0], 3, generator=generator)
            yield (x, *self.part(x, y)) if whole else self.part(x, y)

    def loop(self, model, optimizer, before_step=None, after_step=None, shape=(8, 6), count=6, **options):
        """The loop of most programs."""
        optimizer = self.wrap(optimizer, model, **options)
        for x, y in self.batches(count, shape):
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            if before_step:
                before_step(model, optimizer)
            optimizer.step()
            if after_step:
                after_step(model, optimizer)
        return model


def with_log(model, log):
    """The log is compared, too."""
    model.register_buffer("log", torch.tensor(log, dtype=torch.float64))
    return model


def run(words):
    """All cases, or those with one of these words in their name, or with "but" first those without; what is wrong, by
    case."""
    but = words[:1] == ["but"]
    wrong = {}
    for name, (function, tolerance) in CASES.items():
        if words and any(word in name for word in words[but:]) == but:
            continue
        try:
            said = _compare(function, tolerance)
        except Exception as error:  # noqa: BLE001  # the others are of interest, too
            traceback.print_exc()
            said = f"{type(error).__name__}: {error}"
        if said:
            wrong[name] = said
    return wrong


def _compare(function, tolerance):
    torch.manual_seed(7)
    expected = function(Training(False)).state_dict()
    torch.manual_seed(7)
    got = function(Training(True)).state_dict()
    worst = max(_difference(expected[key], got[key]) for key in expected)
    bits = torch.cat([torch.view_as_real(v).flatten() if v.is_complex() else v.detach().flatten().double()
                      for v in got.values()])  # fmt: skip
    of_ranks = gradbus.allgather(bits[None])
    if not worst <= tolerance:
        return f"differs from one process by {worst:.2g}"
    return "" if torch.equal(of_ranks, of_ranks[:1].expand_as(of_ranks)) else "ranks differ"


def _difference(expected, got):
    if expected.numel() == 0:
        return 0.0
    return float((expected.detach() - got.detach()).abs().max() / (expected.detach().abs().max() + 1e-3))

"""Cases: unusual parameters, and models that change while they are trained."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import parametrizations, parametrize, prune
from training_cases import case, mlp, sgd, step


def spectral():
    return nn.Sequential(
        parametrizations.spectral_norm(nn.Linear(6, 8)),
        nn.Tanh(),
        nn.utils.spectral_norm(nn.Linear(8, 8)),
        nn.Linear(8, 3),
    )


def weight_norm_of_old():
    return nn.Sequential(nn.utils.weight_norm(nn.Linear(6, 8)), nn.Tanh(), nn.Linear(8, 3))


class Own(nn.Module):
    """Wraps a parameter made by a function."""

    def __init__(self, weight, bias=None):
        super().__init__()
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(torch.zeros(3) if bias is None else bias)

    def forward(self, x):
        return (x.to(self.weight.dtype) @ self.weight).to(x.dtype) + self.bias.to(x.dtype)


def transposed():
    return Own(torch.randn(3, 6).t())


def strided():
    return Own(torch.randn(6, 6)[:, ::2])


def inside_a_buffer():
    flat = torch.randn(64)
    model = Own(flat[5:23].view(6, 3), flat[30:33])
    return model


def halves():
    return nn.Sequential(Own(torch.randn(6, 3).double()), nn.Linear(3, 3))


class Expanded(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.layer = nn.Linear(6, 3)
        self.table = nn.ParameterDict({"a": nn.Parameter(torch.randn(3)), "b": nn.Parameter(torch.tensor(0.5))})
        self.list = nn.ParameterList([torch.randn(3) for _ in range(3)])

    def forward(self, x):
        return self.layer(x) * self.scale.expand(3) + self.table["a"] * self.table["b"] + sum(self.list)


class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleDict(
            {"layer" * 80: nn.Linear(6, 8), "schicht_ä_层": nn.Linear(8, 8), "x y": nn.Linear(8, 3)}
        )

    def forward(self, x):
        for layer in self.layers.values():
            x = torch.tanh(layer(x))
        return x


class Many(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ParameterList([nn.Parameter(torch.randn(3)) for _ in range(700)])
        self.layer = nn.Linear(6, 3)

    def forward(self, x):
        return self.layer(x) + torch.stack(tuple(self.parts)).mean(0)


class Recurrences(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(6, 6)
        self.conv = nn.Conv3d(1, 2, 3, padding=1)
        self.bilinear = nn.Bilinear(6, 6, 3)

    def forward(self, x):
        h, c = self.cell(x)
        return self.bilinear(h, c) + self.conv(x.view(-1, 1, 1, 2, 3)).mean((1, 2, 3, 4))[:, None]


def scripted():
    return torch.jit.script(mlp())


def traced():
    return torch.jit.trace(mlp(), torch.zeros(2, 6))


MODELS = {
    "spectral_norm": spectral,
    "weight_norm_of_old": weight_norm_of_old,
    "transposed": transposed,
    "strided": strided,
    "inside_a_buffer": inside_a_buffer,
    "two_dtypes": halves,
    "lists_of_parameters": Expanded,
    "long_names": Named,
    "many_parameters": Many,
    "cells": Recurrences,
    "scripted": scripted,
    "traced": traced,
    "data_parallel": lambda: nn.DataParallel(mlp()),
    "channels_last_3d": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 1, 2, 3)),
        nn.Conv3d(1, 3, 3, padding=1).to(memory_format=torch.channels_last_3d),
        nn.Flatten(),
        nn.Linear(18, 3),
    ),
}
for _name, _make in MODELS.items():

    @case(name=f"more_model_{_name}")
    def _with_model(training, make=_make):
        model = make()
        return training.loop(model, sgd(model, momentum=0.5))


@case(tolerance=2e-3)
def sixteen_bits(training):
    model = mlp().to(torch.float16)
    optimizer = training.wrap(torch.optim.SGD(model.parameters(), 0.125), model)
    for x, y in training.batches():
        optimizer.zero_grad()
        F.mse_loss(model(x.half()).float(), y).backward()
        optimizer.step()
    return model.float()


@case
def parametrization_removed(training):
    model = nn.Sequential(parametrizations.weight_norm(nn.Linear(6, 8)), nn.Linear(8, 3))
    optimizer = training.wrap(sgd(model), model)
    for number, (x, y) in enumerate(training.batches()):
        if number == 3:
            parametrize.remove_parametrizations(model[0], "weight")
            optimizer = training.wrap(sgd(model), model)
        step(model, optimizer, x, y)
    return model


@case
def parameter_replaced(training):
    """The optimizer keeps the old one, as in one process."""
    model = mlp()
    optimizer = training.wrap(sgd(model), model)
    for number, (x, y) in enumerate(training.batches()):
        if number == 3:
            model[2].weight = nn.Parameter(model[2].weight.detach() * 0.5)
        step(model, optimizer, x, y)
    return model


@case
def tied_after_wrapping(training):
    model = mlp()
    model.append(nn.Linear(3, 16, bias=False))
    model.append(nn.Linear(16, 3))
    optimizer = training.wrap(sgd(model), model)
    for number, (x, y) in enumerate(training.batches()):
        if number == 2:
            model[6].weight = model[4].weight
        step(model, optimizer, x, y)
    return model


@case
def memory_format_changed_later(training):
    model = nn.Sequential(nn.Unflatten(1, (2, 1, 3)), nn.Conv2d(2, 3, 3, padding=1), nn.Flatten(), nn.Linear(9, 3))
    optimizer = training.wrap(sgd(model), model)
    for number, (x, y) in enumerate(training.batches()):
        if number == 2:
            model.to(memory_format=torch.channels_last)
        if number == 4:
            model.to(memory_format=torch.contiguous_format)
        step(model, optimizer, x, y)
    return model


@case
def shared_with_processes(training):
    model = mlp()
    optimizer = training.wrap(sgd(model), model)
    for number, (x, y) in enumerate(training.batches()):
        if number == 2:
            model.share_memory()
        step(model, optimizer, x, y)
    return model


@case
def pruned_later(training):
    model = mlp()
    optimizer = training.wrap(sgd(model), model)
    for number, (x, y) in enumerate(training.batches()):
        if number == 2:
            prune.l1_unstructured(model[0], "weight", 0.5)
        if number == 4:
            prune.remove(model[0], "weight")
        step(model, optimizer, x, y)
    return model

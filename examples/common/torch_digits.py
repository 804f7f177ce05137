"""What the digits examples that use plain PyTorch share: the model and its parameters for the report."""

from __future__ import annotations

import argparse

import numpy as np
import torch

from common import plain_digits


def build_model(arguments: argparse.Namespace, rank: int) -> torch.nn.Module:
    """Other ranks than 0 begin with zeros: a broadcast repairs that."""
    torch.set_num_threads(1)  # ranks share the cores
    first, second = torch.nn.Linear(64, arguments.hidden), torch.nn.Linear(arguments.hidden, 10)
    given = plain_digits.initial_parameters(arguments, rank)
    with torch.no_grad():
        for number, layer in enumerate((first, second), 1):
            layer.weight.copy_(torch.from_numpy(given[f"w{number}"].T.copy()))
            layer.bias.copy_(torch.from_numpy(given[f"b{number}"]))
    return torch.nn.Sequential(first, torch.nn.Tanh(), second)


def parameters_of(model: torch.nn.Module) -> dict[str, np.ndarray]:
    """w1, b1, w2, b2 with weights of shape (in, out)."""
    named = {}
    for number, layer in enumerate((model[0], model[2]), 1):
        named[f"w{number}"] = layer.weight.detach().numpy().T.copy()
        named[f"b{number}"] = layer.bias.detach().numpy()
    return named

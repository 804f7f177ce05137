"""What the programs that classify images share: a model, a batch of images, cross-entropy, and SGD with momentum."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from torch import nn

from common import training


def add_options(parser: argparse.ArgumentParser) -> None:
    """--lr, --momentum and --weight-decay."""
    parser.add_argument("--lr", type=float, default=0.01, help="learning rate")
    parser.add_argument("--momentum", type=float, default=0.9, help="of SGD")
    parser.add_argument("--weight-decay", type=float, default=1e-4, help="of SGD")


def workload(
    arguments: argparse.Namespace,
    make_model: Callable[[], nn.Module],
    batch: Callable[[int], training.Batch],
    evaluate: Callable[[nn.Module], dict[str, float]] = lambda _: {},
) -> training.Workload:
    """The training of the model that `arguments` name."""

    def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(
            model.parameters(), lr=arguments.lr, momentum=arguments.momentum, weight_decay=arguments.weight_decay
        )

    def loss(model: nn.Module, of: training.Batch) -> torch.Tensor:
        return nn.functional.cross_entropy(model(of[0]), of[1])

    return training.Workload(arguments.model, make_model, make_optimizer, batch, loss, evaluate)

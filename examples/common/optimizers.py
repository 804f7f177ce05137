"""Optimizers whose momentum can be left to the compression of Gradbus.

Momentum correction (`ef=dgc`) does the momentum of a compressed gradient before it is sent, so the optimizer must not
do it once more; gradients that travel dense still need the optimizer's.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch

COMPRESSED_ELEMENTS_MIN = 16384  # what `gradbus run --compression` compresses: docs/how-to/compress-gradients.md
COMPRESSED_DIMS_MIN = 2


def add_options(parser: argparse.ArgumentParser, momentum: float) -> None:
    """--momentum and --momentum-compressed."""
    parser.add_argument("--momentum", type=float, default=momentum, help="of the optimizer")
    parser.add_argument(
        "--momentum-compressed",
        type=float,
        metavar="MOMENTUM",
        help="of parameters whose gradients a --compression takes; 0 when it has ef=dgc (default: --momentum)",
    )


def is_compressed(parameter: torch.Tensor) -> bool:
    """Whether a job's compression takes the gradient of this parameter."""
    return parameter.dim() >= COMPRESSED_DIMS_MIN and parameter.numel() >= COMPRESSED_ELEMENTS_MIN


def groups(model: torch.nn.Module, arguments: argparse.Namespace) -> list[tuple[list[torch.Tensor], float]]:
    """(parameters, momentum) for the optimizer: one group, or what is compressed and the rest."""
    parameters = list(model.parameters())
    if arguments.momentum_compressed is None:
        return [(parameters, arguments.momentum)]
    compressed = [p for p in parameters if is_compressed(p)]
    dense = [p for p in parameters if not is_compressed(p)]
    pairs = [(compressed, arguments.momentum_compressed), (dense, arguments.momentum)]
    return [(members, momentum) for members, momentum in pairs if members]


def sgd(model: torch.nn.Module, arguments: argparse.Namespace, lr: float) -> torch.optim.Optimizer:
    """Plain SGD with momentum."""
    found: list[dict[str, Any]] = [{"params": p, "momentum": momentum} for p, momentum in groups(model, arguments)]
    return torch.optim.SGD(found, lr=lr)


def adam_options(parser: argparse.ArgumentParser) -> None:
    """--optimizer and --dense-steps."""
    parser.add_argument("--optimizer", choices=("sgd", "adam", "onebit-adam", "zero-one-adam"), default="sgd")
    parser.add_argument("--dense-steps", type=int, default=300, help="of 1-bit and 0/1 Adam: when squares freeze")


def chosen(model: torch.nn.Module, arguments: argparse.Namespace, lr: float) -> torch.optim.Optimizer:
    """What --optimizer says. 1-bit and 0/1 Adam are Gradbus's, and exchange by themselves."""
    if arguments.optimizer == "sgd":
        return sgd(model, arguments, lr)
    if arguments.optimizer == "adam":
        return torch.optim.Adam(model.parameters(), lr=lr)
    import gradbus.torch as gradbus

    if arguments.optimizer == "onebit-adam":
        return gradbus.OneBitAdam(model.parameters(), lr=lr, warmup_steps=arguments.dense_steps)
    return gradbus.ZeroOneAdam(
        model.parameters(), lr=lr, freeze_step=arguments.dense_steps, local_step_scaler=arguments.dense_steps
    )


def adamw(model: torch.nn.Module, arguments: argparse.Namespace, lr: float) -> torch.optim.Optimizer:
    """AdamW with the settings of many a transformer; momentum is its first beta."""
    found: list[dict[str, Any]] = [
        {"params": p, "betas": (momentum, 0.99)} for p, momentum in groups(model, arguments)
    ]
    return torch.optim.AdamW(found, lr=lr, weight_decay=0.1)


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """For the steps that follow."""
    for group in optimizer.param_groups:
        group["lr"] = lr

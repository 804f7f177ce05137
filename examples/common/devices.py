"""Where a model is trained: in host memory, or on a GPU.

A rank on a GPU takes the one with its number among the ranks of its node; where there are fewer GPUs
than ranks they share them.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch

_PLACE = "https://pytorch.org/get-started/locally"


def add_options(parser: argparse.ArgumentParser) -> None:
    """--device."""
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu",
                        help="where the model is trained; cuda: rank i of a node on its GPU i")  # fmt: skip


def check(parser: argparse.ArgumentParser, device: str) -> None:
    """Ends the program, before it joins a job, when torch cannot train there."""
    if device == "cuda" and not torch.cuda.is_available():
        parser.error(f"--device cuda: torch {torch.__version__} {_why_no_gpu()}, or leave --device cpu")


def _why_no_gpu() -> str:
    if torch.version.cuda is None:
        return f"is built without CUDA | next: install a torch with CUDA into this Python ({_PLACE})"
    return f"(CUDA {torch.version.cuda}) finds no GPU | next: see what nvidia-smi and CUDA_VISIBLE_DEVICES say"


def take(device: str, backend: Any) -> torch.device:
    """This rank's, and torch's default from now on."""
    if device == "cpu":
        return torch.device("cpu")
    torch.cuda.set_device(backend.local_rank() % torch.cuda.device_count())
    return torch.device("cuda", torch.cuda.current_device())


def finish() -> None:
    """Waits for what a GPU was given to do, if one is used: what a clock is to measure."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()

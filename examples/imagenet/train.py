"""Training steps of torchvision's image classifiers on synthetic images: ResNet, VGG, DenseNet.

    gradbus run -np 2 --agents 2 --no-prefix -- python examples/imagenet/train.py --model resnet50 --time
    gradbus run -np 2 --agents 2 --link 1gbit --no-prefix -- \\
        python examples/imagenet/train.py --model resnet18 --image-size 64 --batch-size 40 --schedule dear

For speed, not for accuracy: the images are made up. Needs torchvision.
"""

from __future__ import annotations

import argparse
import pathlib
import sys

from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from common import images, synthetic, training  # noqa: E402

MODELS = ("resnet18", "resnet50", "resnet101", "vgg16", "densenet121", "densenet201")
SIDE_MIN = 32  # below this the models have no pixel left at their end


def make_model(name: str, classes: int) -> nn.Module:
    """As torchvision defines it, with random weights."""
    try:
        from torchvision import models
    except ImportError as error:
        sys.exit(f"--model {name}: {error} | next: {sys.executable} -m pip install torchvision")
    return getattr(models, name)(num_classes=classes)


def main(words: list[str] | None = None) -> None:
    """One rank."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, default="resnet50", help="a model of torchvision")
    parser.add_argument("--image-size", type=int, default=224, help="pixels of a side")
    parser.add_argument("--classes", type=int, default=1000, help="of the labels")
    images.add_options(parser)
    training.add_options(parser, steps=20, batch_size=32)
    arguments = training.parse(parser, words)
    if arguments.image_size < SIDE_MIN or arguments.classes < 2:
        parser.error(f"--image-size must be at least {SIDE_MIN}, --classes 2")
    data = synthetic.Images(arguments.image_size, arguments.classes, arguments.seed)
    training.run(
        images.workload(
            arguments,
            lambda: make_model(arguments.model, arguments.classes),
            lambda step: data.batch(step, arguments.batch_size),
        ),
        arguments,
    )


if __name__ == "__main__":
    main()

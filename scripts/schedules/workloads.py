"""Trainings: a model, a batch of random data, and a loss. Small ones for two cores, and those of DeAR and MergeComp.

The large ones come from torchvision and transformers (examples/imagenet, examples/bert), and want many cores.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import nn

CLASSES = 1000


class Block(nn.Module):
    """Two convolutions and a shortcut (He et al. 2016, figure 2)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The shape follows from the layers."""
        hidden = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(hidden)) + self.shortcut(x))


def resnet18() -> nn.Module:
    """11.7 M parameters."""
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    widths = (64, 64, 128, 256, 512)
    blocks = []
    for before, width in zip(widths, widths[1:]):
        blocks += [Block(before, width, 1 if width == 64 else 2), Block(width, width, 1)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, CLASSES))


def vgg() -> nn.Module:
    """10.8 M parameters, nine tenths of them in the two last layers, as in VGG-16."""
    return nn.Sequential(
        nn.Conv2d(3, 64, 3, 2, 1), nn.ReLU(), nn.Conv2d(64, 128, 3, 2, 1), nn.ReLU(),
        nn.Conv2d(128, 256, 3, 1, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(6), nn.Flatten(),
        nn.Linear(9216, 1024), nn.ReLU(), nn.Linear(1024, CLASSES),
    )  # fmt: skip


def mlp() -> nn.Module:
    """25.6 M parameters, and little to compute."""
    return nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(2064, 2064), nn.ReLU())])


class Transformer(nn.Module):
    """11.0 M parameters, four in ten of them in the embedding: it is used first, and its gradient is ready last."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(8192, 512)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(512, 8, 1024, dropout=0.0, batch_first=True) for _ in range(3)
        )
        self.head = nn.Linear(512, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The shape follows from the layers."""
        hidden = self.embedding(x)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(hidden.mean(1))


class Words(nn.Module):
    """BERT by transformers' configuration, as a classifier of texts: its encoder is what is exchanged."""

    def __init__(self, layers: int, width: int, heads: int) -> None:
        super().__init__()
        from transformers import BertConfig, BertModel

        self.bert = BertModel(
            BertConfig(hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
                       intermediate_size=4 * width)
        )  # fmt: skip
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[n, words] to [n, CLASSES]."""
        return self.head(self.bert(x).pooler_output)


def torchvision_model(name: str) -> Callable[[], nn.Module]:
    """With random weights."""

    def make() -> nn.Module:
        from torchvision import models

        return getattr(models, name)(num_classes=CLASSES)

    return make


def pixels(n: int) -> torch.Tensor:
    """As of ImageNet."""
    return torch.randn(n, 3, 224, 224)


def words(n: int) -> torch.Tensor:
    """64 of each text, as DeAR measures."""
    return torch.randint(30522, (n, 64))


@dataclasses.dataclass(frozen=True)
class Workload:
    """One training."""

    make: Callable[[], nn.Module]
    inputs: Callable[[int], torch.Tensor]  # of a batch of this size
    batch_size: int
    classes: int = CLASSES


SMALL = ("resnet18", "vgg", "transformer", "mlp")  # the grid of the page
WORKLOADS = {
    "resnet18": Workload(resnet18, lambda n: torch.randn(n, 3, 64, 64), 40),
    "vgg": Workload(vgg, lambda n: torch.randn(n, 3, 64, 64), 32),
    "transformer": Workload(Transformer, lambda n: torch.randint(8192, (n, 32)), 8),
    "mlp": Workload(mlp, lambda n: torch.randn(n, 2064), 16, 2064),
    **{name: Workload(torchvision_model(name), pixels, 32)
       for name in ("resnet50", "resnet101", "vgg16", "densenet201")},
    "bert-base": Workload(lambda: Words(12, 768, 12), words, 32),
    "bert-large": Workload(lambda: Words(24, 1024, 16), words, 16),
}  # fmt: skip

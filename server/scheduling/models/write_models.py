"""Writes the tables of layers beside this file: NAME.csv with a line "layer,elements,mflop" for each layer.

    python3 server/scheduling/models/write_models.py [FOLDER]

A layer is a module that owns parameters; its weight and bias are exchanged together. The lines have the order of
the forward pass. `mflop` is the work of one sample's forward pass: two operations per multiplication. It only gives
each layer its share of the model's computing time (server/scheduling/known_models.cc has the totals).

Computed from the published definitions: ResNet (He et al. 2016), VGG-16 (Simonyan and Zisserman 2015), DenseNet-201
(Huang et al. 2017) at 224x224 pixels, with torchvision's names; BERT (Devlin et al. 2019) at 64 tokens, with the
pooler; the perceptron of examples/mlp. Needs nothing but Python.
"""

from __future__ import annotations

import dataclasses
import pathlib
import sys
from collections.abc import Callable, Iterator

TOKENS = 64  # the length of a sentence in DeAR's measurements


@dataclasses.dataclass
class Layer:
    """One line of a table."""

    name: str
    elements: int
    flop: float


def convolution(name: str, kernel: int, inputs: int, outputs: int, pixels: int, bias: bool = False) -> Layer:
    """A square convolution; `pixels` is the side of its output."""
    weights = kernel * kernel * inputs * outputs
    return Layer(name, weights + (outputs if bias else 0), 2 * weights * pixels**2)


def norm(name: str, width: int, positions: int) -> Layer:
    """Scale and shift of a batch or layer normalisation: about four operations per activation."""
    return Layer(name, 2 * width, 4 * width * positions)


def dense(name: str, inputs: int, outputs: int, rows: int = 1) -> Layer:
    """A fully connected layer with bias."""
    return Layer(name, inputs * outputs + outputs, 2 * inputs * outputs * rows)


def bottleneck(name: str, inputs: int, width: int, side: int, stride: int, first: bool) -> Iterator[Layer]:
    """1x1, 3x3, 1x1 convolutions; torchvision gives the stride to the 3x3."""
    small = side // stride
    outputs = 4 * width
    shapes = ((1, inputs, width, side), (3, width, width, small), (1, width, outputs, small))
    for number, (kernel, source, target, pixels) in enumerate(shapes, start=1):
        yield convolution(f"{name}.conv{number}", kernel, source, target, pixels)
        yield norm(f"{name}.bn{number}", target, pixels**2)
    if first:
        yield convolution(f"{name}.downsample.0", 1, inputs, outputs, small)
        yield norm(f"{name}.downsample.1", outputs, small**2)


def resnet(*blocks_of_stage: int) -> Iterator[Layer]:
    """He et al., table 1."""
    yield convolution("conv1", 7, 3, 64, 112)
    yield norm("bn1", 64, 112**2)
    inputs, side = 64, 56
    for stage, blocks in enumerate(blocks_of_stage, start=1):
        width = 32 << stage
        for block in range(blocks):
            stride = 2 if stage > 1 and block == 0 else 1
            yield from bottleneck(f"layer{stage}.{block}", inputs, width, side, stride, block == 0)
            inputs, side = 4 * width, side // stride
    yield dense("fc", inputs, 1000)


def vgg16() -> Iterator[Layer]:
    """Simonyan and Zisserman, table 1, column D."""
    inputs, layer, side = 3, 0, 224
    for width, convolutions in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(convolutions):
            yield convolution(f"features.{layer}", 3, inputs, width, side, bias=True)
            inputs, layer = width, layer + 2  # a ReLU follows each
        layer, side = layer + 1, side // 2  # the pooling
    for layer, source, target in ((0, 7 * 7 * 512, 4096), (3, 4096, 4096), (6, 4096, 1000)):
        yield dense(f"classifier.{layer}", source, target)


def densenet201(growth: int = 32) -> Iterator[Layer]:
    """Huang et al., table 1: normalisation, 1x1 to four times the growth, normalisation, 3x3."""
    yield convolution("features.conv0", 7, 3, 64, 112)
    yield norm("features.norm0", 64, 112**2)
    width, side, blocks = 64, 56, (6, 12, 48, 32)
    for block, layers in enumerate(blocks, start=1):
        for layer in range(1, layers + 1):
            name = f"features.denseblock{block}.denselayer{layer}"
            yield norm(f"{name}.norm1", width, side**2)
            yield convolution(f"{name}.conv1", 1, width, 4 * growth, side)
            yield norm(f"{name}.norm2", 4 * growth, side**2)
            yield convolution(f"{name}.conv2", 3, 4 * growth, growth, side)
            width += growth
        if block < len(blocks):
            yield norm(f"features.transition{block}.norm", width, side**2)
            yield convolution(f"features.transition{block}.conv", 1, width, width // 2, side)
            width, side = width // 2, side // 2
    yield norm("features.norm5", width, side**2)
    yield dense("classifier", width, 1000)


def bert_layer(name: str, width: int) -> Iterator[Layer]:
    """Self-attention, then two fully connected layers of four times the width between."""
    for part in ("query", "key", "value"):
        yield dense(f"{name}.attention.self.{part}", width, width, TOKENS)
    output = dense(f"{name}.attention.output.dense", width, width, TOKENS)
    output.flop += 4 * width * TOKENS**2  # the attention itself owns no parameters
    yield output
    yield norm(f"{name}.attention.output.LayerNorm", width, TOKENS)
    yield dense(f"{name}.intermediate.dense", width, 4 * width, TOKENS)
    yield dense(f"{name}.output.dense", 4 * width, width, TOKENS)
    yield norm(f"{name}.output.LayerNorm", width, TOKENS)


def bert(width: int, layers: int) -> Iterator[Layer]:
    """Devlin et al., section 3; 30522 word pieces, 512 positions, two segments."""
    for part, rows in (("word", 30522), ("position", 512), ("token_type", 2)):
        yield Layer(f"embeddings.{part}_embeddings", rows * width, width * TOKENS)
    yield norm("embeddings.LayerNorm", width, TOKENS)
    for layer in range(layers):
        yield from bert_layer(f"encoder.layer.{layer}", width)
    yield dense("pooler.dense", width, width)


def mlp() -> Iterator[Layer]:
    """The perceptron of examples/mlp."""
    for number, (inputs, outputs) in enumerate(((3072, 4096), (4096, 2560), (2560, 1000))):
        yield dense(f"layer{number}", inputs, outputs)


MODELS: dict[str, Callable[[], Iterator[Layer]]] = {
    "resnet50": lambda: resnet(3, 4, 6, 3),
    "resnet101": lambda: resnet(3, 4, 23, 3),
    "vgg16": vgg16,
    "densenet201": densenet201,
    "bert-base": lambda: bert(768, 12),
    "bert-large": lambda: bert(1024, 24),
    "mlp": mlp,
}


def main() -> None:
    """Writes every table into the folder named, or beside this file."""
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent
    for name, layers in MODELS.items():
        lines = ["layer,elements,mflop"]
        lines += [f"{layer.name},{layer.elements},{layer.flop / 1e6:.6g}" for layer in layers()]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

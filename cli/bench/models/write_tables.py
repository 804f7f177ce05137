"""Writes the tables of parameters beside this file: NAME.csv with a line "name,count" for each tensor.

    python3 cli/bench/models/write_tables.py [FOLDER]

Computed from the published definitions, in the order of the forward pass, with the parameters' names in
torchvision (ResNet-50: He et al. 2016, VGG-16: Simonyan and Zisserman 2015) and Hugging Face transformers
(BERT: Devlin et al. 2019, with the pooler; GPT-2: Radford et al. 2019, the head shares the word embedding).
Needs nothing but Python.
"""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Callable, Iterator

Tensor = tuple[str, int]  # name, elements


def with_bias(name: str, inputs: int, outputs: int) -> Iterator[Tensor]:
    """A fully connected layer."""
    yield f"{name}.weight", inputs * outputs
    yield f"{name}.bias", outputs


def norm(name: str, width: int) -> Iterator[Tensor]:
    """Scale and shift of a batch or layer normalisation."""
    yield f"{name}.weight", width
    yield f"{name}.bias", width


def convolution(name: str, kernel: int, inputs: int, outputs: int) -> Iterator[Tensor]:
    """A square convolution without bias: the normalisation behind it has one."""
    yield f"{name}.weight", kernel * kernel * inputs * outputs


def bottleneck(name: str, inputs: int, width: int, first: bool) -> Iterator[Tensor]:
    """1x1, 3x3, 1x1 convolutions, and on a stage's first block a 1x1 around them (He et al., figure 5)."""
    outputs = 4 * width
    for number, (kernel, source, target) in enumerate(
        ((1, inputs, width), (3, width, width), (1, width, outputs)), start=1
    ):
        yield from convolution(f"{name}.conv{number}", kernel, source, target)
        yield from norm(f"{name}.bn{number}", target)
    if first:
        yield from convolution(f"{name}.downsample.0", 1, inputs, outputs)
        yield from norm(f"{name}.downsample.1", outputs)


def resnet50() -> Iterator[Tensor]:
    """He et al., table 1, the column of 50 layers."""
    yield from convolution("conv1", 7, 3, 64)
    yield from norm("bn1", 64)
    inputs = 64
    for stage, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3)), start=1):
        for block in range(blocks):
            yield from bottleneck(f"layer{stage}.{block}", inputs, width, block == 0)
            inputs = 4 * width
    yield from with_bias("fc", inputs, 1000)


def vgg16() -> Iterator[Tensor]:
    """Simonyan and Zisserman, table 1, column D."""
    inputs, layer = 3, 0
    for width, convolutions in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(convolutions):
            yield from with_bias(f"features.{layer}", 9 * inputs, width)
            inputs, layer = width, layer + 2  # a ReLU follows each
        layer += 1  # the pooling
    for layer, source, target in ((0, 7 * 7 * 512, 4096), (3, 4096, 4096), (6, 4096, 1000)):
        yield from with_bias(f"classifier.{layer}", source, target)


def bert_layer(name: str, width: int) -> Iterator[Tensor]:
    """Self-attention, then two fully connected layers of four times the width between."""
    for part in ("query", "key", "value"):
        yield from with_bias(f"{name}.attention.self.{part}", width, width)
    yield from with_bias(f"{name}.attention.output.dense", width, width)
    yield from norm(f"{name}.attention.output.LayerNorm", width)
    yield from with_bias(f"{name}.intermediate.dense", width, 4 * width)
    yield from with_bias(f"{name}.output.dense", 4 * width, width)
    yield from norm(f"{name}.output.LayerNorm", width)


def bert(width: int, layers: int) -> Iterator[Tensor]:
    """Devlin et al., section 3; 30522 word pieces, 512 positions, two segments."""
    for part, rows in (("word", 30522), ("position", 512), ("token_type", 2)):
        yield f"embeddings.{part}_embeddings.weight", rows * width
    yield from norm("embeddings.LayerNorm", width)
    for layer in range(layers):
        yield from bert_layer(f"encoder.layer.{layer}", width)
    yield from with_bias("pooler.dense", width, width)


def gpt2(width: int = 768, layers: int = 12) -> Iterator[Tensor]:
    """Radford et al., table 2, first row; 50257 tokens, 1024 positions."""
    yield "wte.weight", 50257 * width
    yield "wpe.weight", 1024 * width
    for layer in range(layers):
        name = f"h.{layer}"
        yield from norm(f"{name}.ln_1", width)
        yield from with_bias(f"{name}.attn.c_attn", width, 3 * width)
        yield from with_bias(f"{name}.attn.c_proj", width, width)
        yield from norm(f"{name}.ln_2", width)
        yield from with_bias(f"{name}.mlp.c_fc", width, 4 * width)
        yield from with_bias(f"{name}.mlp.c_proj", 4 * width, width)
    yield from norm("ln_f", width)


MODELS: dict[str, Callable[[], Iterator[Tensor]]] = {
    "resnet50": resnet50,
    "vgg16": vgg16,
    "bert-base": lambda: bert(768, 12),
    "bert-large": lambda: bert(1024, 24),
    "gpt2": gpt2,
}


def main() -> None:
    """Writes every table into the folder named, or beside this file."""
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent
    for name, tensors in MODELS.items():
        lines = ["name,count", *(f"{tensor},{count}" for tensor, count in tensors())]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

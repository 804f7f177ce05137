"""Sizes of the gradients of two well-known models, in the order a backward pass makes them.

From the papers' tables (ResNet: He et al. 2016, table 1; BERT: Devlin et al. 2019, section 3), with the
parameters as PyTorch and Hugging Face name them. So peers exchange what `gradbus bench --model` does.
"""

from __future__ import annotations

STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))  # width, blocks
EXPANSION = 4


def resnet50() -> list[int]:
    """161 tensors, 25,557,032 elements."""
    counts = [7 * 7 * 3 * 64, 64, 64]  # every convolution is followed by scale and shift of its norm
    before = 64
    for width, blocks in STAGES:
        for block in range(blocks):
            wide = width * EXPANSION
            for kernel, inputs, outputs in ((1, before, width), (3, width, width), (1, width, wide)):
                counts += [kernel * kernel * inputs * outputs, outputs, outputs]
            if block == 0:
                counts += [before * wide, wide, wide]
            before = wide
    counts += [before * 1000, 1000]
    return counts[::-1]


def bert_base(hidden: int = 768, layers: int = 12, words: int = 30522, positions: int = 512) -> list[int]:
    """199 tensors, 109,482,240 elements, with the pooler."""
    norm = [hidden, hidden]
    square = [hidden * hidden, hidden]
    up = [hidden * 4 * hidden, 4 * hidden]
    down = [4 * hidden * hidden, hidden]
    counts = [words * hidden, positions * hidden, 2 * hidden, *norm]
    for _ in range(layers):
        counts += square * 4 + norm + up + down + norm
    return (counts + square)[::-1]


MODELS = {"resnet50": resnet50, "bert-base": bert_base}

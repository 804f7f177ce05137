"""A small decoder-only transformer over characters, in plain PyTorch (1.13 and newer).

No linear layer but the output has a bias: the gradient of attention's key bias is zero in theory and
rounding noise in practice, which Adam would blow up to full steps, so that runs with different numbers
of ranks would drift apart for no reason. There is no dropout for the same reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

HEAD_WIDTH = 32
INIT_STD = 0.02  # as GPT-2


class Attention(nn.Module):
    """Causal self-attention: position t sees positions 0..t, by default the near ones more.

    Distance is a penalty with a slope of its own in each head (ALiBi: Press, Smith, Lewis, ICLR 2022,
    section 3): a model that knows of nearness from the start needs no position parameters.
    """

    def __init__(self, width: int, context: int) -> None:
        super().__init__()
        self.heads = width // HEAD_WIDTH
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        # A plain attribute: as a buffer it would be sent to all ranks, and it is the same on all.
        self.nearness = nearness(self.heads, context)

    def _apply(self, convert: Callable[[torch.Tensor], torch.Tensor], *rest: Any) -> Attention:
        """What to() and its kind do to all tensors of a module but plain attributes."""
        self.nearness = convert(self.nearness)
        return super()._apply(convert, *rest)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, length, width] to the same."""
        batch, length, width = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, HEAD_WIDTH)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)  # each [batch, heads, length, HEAD_WIDTH]
        scores = query @ key.transpose(-2, -1) / math.sqrt(HEAD_WIDTH)
        mixed = torch.softmax(scores + self.nearness[:, :length, :length], dim=-1) @ value
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


def nearness(heads: int, context: int) -> torch.Tensor:
    """[heads, context, context]: -slope * (t - s) of head h, slope 2^(-8 (h + 1) / heads); -inf for s > t."""
    slopes = 2.0 ** (-8.0 * torch.arange(1, heads + 1) / heads)
    distance = torch.arange(context)[:, None] - torch.arange(context)[None, :]
    return (-slopes[:, None, None] * distance).masked_fill(distance < 0, -math.inf)


class Block(nn.Module):
    """Attention, then a layer of four times the width, each added to its input (pre-norm)."""

    def __init__(self, width: int, context: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, context)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, length, width] to the same."""
        x = x + self.attention(self.norm1(x))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class CharModel(nn.Module):
    """Logits of the next character at every position of a text of at most `context` characters."""

    def __init__(self, vocabulary: int, width: int, layers: int, context: int) -> None:
        super().__init__()
        self.characters = nn.Embedding(vocabulary, width)
        self.blocks = nn.Sequential(*(Block(width, context) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.logits = nn.Linear(width, vocabulary)
        self._initialize(layers)

    def _initialize(self, layers: int) -> None:
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=INIT_STD)
        nn.init.zeros_(self.logits.bias)
        # 2 * layers branches add up in the residual stream; this keeps its variance independent of that.
        for block in self.blocks:
            for last in (block.attention.out, block.down):
                nn.init.normal_(last.weight, std=INIT_STD / math.sqrt(2 * layers))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """[batch, length] of character numbers to [batch, length, vocabulary]."""
        return self.logits(self.norm(self.blocks(self.characters(text))))

"""Residual networks for images of 32x32 pixels (He et al. 2016, section 4.2). Shortcuts have no parameters."""

from __future__ import annotations

import torch
from torch import nn

WIDTHS = (16, 32, 64)
CLASSES = 10


class Block(nn.Module):
    """Two convolutions. The shortcut drops every other pixel and adds channels of zeros where the size changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.stride, self.added = stride, outputs - inputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[n, inputs, h, w] to [n, outputs, h / stride, w / stride]."""
        hidden = self.norm2(self.conv2(torch.relu(self.norm1(self.conv1(x)))))
        shortcut = x[:, :, :: self.stride, :: self.stride]
        if self.added:
            half = self.added // 2
            shortcut = nn.functional.pad(shortcut, (0, 0, 0, 0, half, self.added - half))
        return torch.relu(hidden + shortcut)


def resnet(layers: int) -> nn.Module:
    """Of 20, 32, 44, 56 or 110 layers."""
    blocks, rest = divmod(layers - 2, 6)
    if blocks < 1 or rest:
        raise ValueError(f"{layers} layers are not 6n + 2")
    parts: list[nn.Module] = [nn.Conv2d(3, WIDTHS[0], 3, 1, 1, bias=False), nn.BatchNorm2d(WIDTHS[0]), nn.ReLU()]
    before = WIDTHS[0]
    for width in WIDTHS:
        for number in range(blocks):
            parts.append(Block(before, width, 2 if number == 0 and width != WIDTHS[0] else 1))
            before = width
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, CLASSES))

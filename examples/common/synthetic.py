"""Random images with labels, the same on every machine: for models whose data is not at hand.

Each class has a pattern of its own, so that a model can learn something, and the loss falls.
"""

from __future__ import annotations

import torch

PATTERN_SIDE = 8  # patterns are small and stretched, so a thousand classes take little memory


class Images:
    """Batches of [n, 3, side, side] and n labels."""

    def __init__(self, side: int, classes: int, seed: int) -> None:
        self._side, self._classes, self._seed = side, classes, seed
        random = torch.Generator().manual_seed(seed)
        self._patterns = torch.randn(classes, 3, PATTERN_SIDE, PATTERN_SIDE, generator=random)

    def batch(self, step: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Of this step."""
        random = torch.Generator().manual_seed(self._seed * 1_000_003 + step)
        labels = torch.randint(self._classes, (size,), generator=random)
        noise = torch.randn(size, 3, self._side, self._side, generator=random)
        patterns = torch.nn.functional.interpolate(self._patterns[labels], size=self._side)
        return patterns + 0.5 * noise, labels

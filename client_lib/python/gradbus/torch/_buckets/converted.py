"""Gradients of half precision that are exchanged as float32: compressed, or summed without rounding in between."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from .._gpu.staging import GradientStorage


class Converted:
    """A GradientStorage in front of another one. Its view has another dtype; elements are converted on the way."""

    def __init__(self, inner: GradientStorage, dtype: torch.dtype) -> None:
        self.inner = inner
        self.inner_view = 0  # of the last result
        self._vector = torch.zeros_like(inner.views[0], dtype=dtype)
        self.views: Sequence[torch.Tensor] = [self._vector]

    def produced(self) -> None:
        """Nothing is to be done: the gradients are written in the order of the program."""

    def hand_over(self, delay_slot: int, begin: Callable[[], None]) -> None:
        """Widens the gradients first."""
        self.inner.views[delay_slot].copy_(self._vector)
        self.inner.hand_over(delay_slot, begin)

    def finish_handing_over(self) -> None:
        """Forwards to the inner storage."""
        self.inner.finish_handing_over()

    def has_handed_over(self) -> bool:
        """Forwards to the inner storage."""
        return self.inner.has_handed_over()

    def copy_back(self, delay_slot: int) -> int:
        """Rounds the result, once."""
        self.inner_view = self.inner.copy_back(delay_slot)
        self._vector.copy_(self.inner.views[self.inner_view])
        return 0

    def release(self) -> None:
        """Forwards to the inner storage."""
        self.inner.release()

    def carries(self, part: int) -> bool:
        """Forwards to the inner storage."""
        return self.inner.carries(part)

    def close(self) -> None:
        """Closes the inner storage; the view stays."""
        self.inner.close()

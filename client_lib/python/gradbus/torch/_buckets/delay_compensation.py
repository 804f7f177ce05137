"""Delay compensation: a gradient k steps old, corrected for what the parameters have done since.

A mean gradient g of parameters w that are v by now becomes g + dc * (g * g * (v - w)): the first term
of Taylor's series at v, with g * g in place of the second derivatives (DC-ASGD, Zheng et al. 2017).
Adaptive (the same paper's DC-ASGD-a): dc / sqrt(s + 1e-7) in place of dc, where
s = decay * s + (1 - decay) * g * g is counted on from zero.

Every rank has the same g, v and w, so every rank gets the same bits, whatever its processor: each
operation is one of its own, and torch's square roots of float32, which with AVX-512 are a bit off in
one of 180, are taken in float64. Costs k private copies of the parameters, and one more
when adaptive; float32 for half-precision parameters, whose g * g would vanish.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch

from .parameter_info import shaped_as

if TYPE_CHECKING:
    from ... import _core
    from ..._layout import BucketPlan

_EPSILON = 1e-7


class Compensation(NamedTuple):
    """What the mode asks for."""

    delay: int  # k
    strength: float  # dc
    decay: float  # below 0: not adaptive


def compensation_of(mode: _core.Mode) -> Compensation | None:
    """None where gradients are taken as they come."""
    return Compensation(mode.delay, mode.dc, mode.dc_decay) if mode.dc else None


class DelayCompensation:
    """Of one bucket: the parameters as they were when the gradients under way were computed."""

    def __init__(
        self,
        asked: Compensation,
        plan: BucketPlan,
        parameters: Sequence[torch.nn.Parameter],
        flat: torch.Tensor,
        summed: int,
    ) -> None:
        """``parameters`` by the plan's indices; ``summed``: gradients are sums of so many ranks'
        instead of their mean."""
        self._slots = [
            (slice(slot.offset, slot.offset + slot.count), parameters[slot.index])
            for slot in plan.slots
        ]
        dtype = torch.float64 if flat.dtype == torch.float64 else torch.float32
        self._unused = [torch.zeros_like(flat, dtype=dtype) for _ in range(asked.delay)]
        self._then: collections.deque[torch.Tensor] = collections.deque()  # oldest first
        self._strength = asked.strength
        self._decay = asked.decay
        self._mean_square = torch.zeros_like(flat, dtype=dtype) if asked.decay >= 0 else None
        self._summed = summed

    def step(self, gradient: torch.Tensor, is_result: bool) -> None:
        """Corrects the result that a step takes (or zeros, which stay), and remembers the
        parameters that the step's own gradient is of."""
        if is_result:
            self.correct(gradient)
        now = self._unused.pop()
        for place, parameter in self._slots:
            shaped_as(parameter, now[place]).copy_(parameter)
        self._then.append(now)

    def correct(self, gradient: torch.Tensor) -> None:
        """The oldest gradient that was under way, in place."""
        change = self._then.popleft()
        for place, parameter in self._slots:
            then = shaped_as(parameter, change[place])
            torch.sub(parameter.to(then.dtype), then, out=then)
        self._correct(gradient, change)
        self._unused.append(change)

    def _correct(self, gradient: torch.Tensor, change: torch.Tensor) -> None:
        mean = gradient.to(change.dtype) / self._summed
        square = mean * mean
        change.mul_(square).mul_(self._strength)
        if self._mean_square is not None:
            root = self._next_mean(self._mean_square, square).add(_EPSILON).double().sqrt_()
            change.div_(root.to(change.dtype))
        gradient.copy_(mean.add_(change).mul_(self._summed))

    def _next_mean(self, mean_square: torch.Tensor, square: torch.Tensor) -> torch.Tensor:
        # A gradient that is not finite costs a step, and must not stay in the mean for ever.
        finite = torch.where(torch.isfinite(square), square, mean_square)
        return mean_square.mul_(self._decay).add_(finite.mul_(1 - self._decay))

    def mean_squares(self) -> list[torch.Tensor]:
        """s by parameter, in the plan's order, as views; empty unless adaptive. Of complex ones: of both parts."""
        mean = self._mean_square
        if mean is None:
            return []
        return [
            mean[place].view(*parameter.shape, *([2] if parameter.is_complex() else []))
            for place, parameter in self._slots
        ]

    def forget(self) -> None:
        """Nothing is under way."""
        self._unused.extend(self._then)
        self._then.clear()

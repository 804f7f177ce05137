"""The arithmetic of localsgd and diloco on parameters of PyTorch. _modes/local_steps.py says when it is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from ... import _core
    from .._buckets.parameter_buckets import ParameterBucket


class OuterBucket:
    """A bucket of pseudo-gradients, the global copy of its parameters and the outer momentum."""

    def __init__(self, bucket: ParameterBucket, mode: _core.Mode) -> None:
        self.bucket = bucket
        self.theta = bucket.private()  # the global copy
        self.momentum = bucket.private() if mode.outer_momentum else None
        # The parameters as they were at the start, where they change before the end.
        self._snapshot = bucket.private() if mode.overlap else None
        self._lr = mode.outer_lr
        self._momentum_factor = mode.outer_momentum

    @property
    def names(self) -> list[str]:
        """Of its parameters."""
        return self.bucket.names

    def anchor(self) -> None:
        """The parameters are the global copy."""
        self.bucket.copy_parameters(self.theta)

    def start(self) -> None:
        """Sends the pseudo-gradient off."""
        for slot in self.bucket.slots:
            torch.sub(slot.of(self.theta), slot.parameter, out=slot.view)
        if self._snapshot is not None:
            self.bucket.copy_parameters(self._snapshot)
        self.bucket.hand_over()

    def wait(self) -> None:
        """The mean is in the bucket. After a TimeoutError it may be called again."""
        self.bucket.wait()

    def apply(self) -> None:
        """The outer step, on the mean that is in the bucket."""
        self._step_theta(self.bucket.flat)
        if self._snapshot is None:
            self.bucket.set_parameters_to(self.theta)
            return
        for slot in self.bucket.slots:
            progress = slot.parameter - slot.of(self._snapshot)
            slot.parameter.copy_(slot.of(self.theta) + progress)

    def _step_theta(self, mean: torch.Tensor) -> None:
        # As torch.optim.SGD(nesterov=True) does it, bit for bit.
        if self.momentum is not None:
            for slot in self.bucket.slots:
                if not slot.parameter.requires_grad:
                    slot.of(self.momentum).zero_()  # or a frozen parameter would move
            self.momentum.mul_(self._momentum_factor).add_(mean)
            mean.add_(self.momentum, alpha=self._momentum_factor)
        self.theta.add_(mean, alpha=-self._lr)

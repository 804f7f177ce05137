"""The parameters of a bucket that parameter-server shards hold (modes ps:async, ps:ssp, ps:quorum)."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence

import torch

from ..._errors import bad_argument
from .registered import Registered
from .slots import Slot


class ShardParameters:
    """The extra work of a bucket whose parameters shards hold."""

    def __init__(self, bucket: Registered, slots: Sequence[Slot]) -> None:
        self._bucket = weakref.proxy(bucket)  # which holds this
        self._slots = slots
        self.is_set = False  # the shards have the parameters
        self._gradient: torch.Tensor | None = None

    def refuse_frozen(self) -> None:
        """Raises InvalidError: the shards' optimizer would move a frozen parameter by momentum and weight decay."""
        for slot in self._slots:
            if not slot.parameter.requires_grad:
                raise bad_argument(
                    f"parameter '{slot.name}' was frozen, and shards hold it and step on it",
                    "freeze it before DistributedOptimizer(), or use mode sync",
                )

    def start_setting(self) -> None:
        """The first round brings parameters to the shards; gradients there are stay."""
        if self._gradient is not None:
            return  # begun before, and not ended in time
        self._gradient = self._bucket.flat.clone()
        for slot in self._slots:
            slot.view.copy_(slot.parameter)
        self._bucket.hand_over()

    def finish_setting(self) -> None:
        """Every rank has the same now: those of the lowest rank's node."""
        self._bucket.finish()
        self._bucket.copy_back()
        self.take()
        assert self._gradient is not None
        self._bucket.flat.copy_(self._gradient)
        self._gradient = None
        self.is_set = True

    def take(self) -> None:
        """What the shards have answered becomes the parameters."""
        for slot in self._slots:
            slot.parameter.copy_(slot.view)
        self._bucket.flat.zero_()

    def hide(self) -> None:
        """No gradient for the torch optimizer: the step was made."""
        for slot in self._slots:
            slot.parameter.grad = None


def set_parameters(buckets: Iterable[ShardParameters]) -> None:
    """Of those whose shards do not have them yet. All are begun before any is waited for, for ranks
    may come to them in different orders."""
    unset = [bucket for bucket in buckets if not bucket.is_set]
    for bucket in unset:
        bucket.start_setting()
    for bucket in unset:
        bucket.finish_setting()

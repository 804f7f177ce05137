"""The parameters of a bucket that parameter-server shards hold (modes ps:async, ps:ssp, ps:quorum)."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from ..._errors import InvalidError, bad_argument
from .registered import Registered
from .slots import Slot


class ShardParameters:
    """The extra work of a bucket whose parameters shards hold."""

    def __init__(self, bucket: Registered, slots: Sequence[Slot], options: Mapping[str, Any]) -> None:
        """``options`` of the optimizer's group, with which shards step."""
        self._options = options
        self._bucket = weakref.proxy(bucket)  # which holds this
        self._slots = slots
        self.is_set = False  # the shards have the parameters
        self._versions: list[int] = []  # of the parameters, as they were taken from shards
        self._gradient: torch.Tensor | None = None

    def refuse_frozen(self) -> None:
        """Raises InvalidError: the shards' optimizer would move a frozen parameter by momentum and weight decay."""
        for slot in self._slots:
            if not slot.parameter.requires_grad:
                raise bad_argument(
                    f"parameter '{slot.name}' was frozen, and shards hold it and step on it",
                    "freeze it before DistributedOptimizer(), or use mode sync",
                )

    def refuse_edits(self, group_of: Mapping[int, dict[str, Any]]) -> None:
        """Raises InvalidError if a script has changed what shards know of the optimizer.

        ``group_of``: by id() of the parameter.
        """
        first, checked = group_of.get(id(self._slots[0].parameter)), None
        for slot in self._slots:
            group = group_of.get(id(slot.parameter))
            if (group is None) is not (first is None):
                raise _left_group_error(slot)
            if group is not None and group is not checked:
                checked = group
                self._refuse_other_options(slot, group)

    def _refuse_other_options(self, slot: Slot, group: dict[str, Any]) -> None:
        for option, told in self._options.items():
            now = group.get(option, told)
            if now != told and plain_option(now) != told:
                raise _option_error(slot, option, now, told)

    def refuse_writes(self) -> None:
        """Raises InvalidError if somebody has written to a parameter since it was taken: shards have another one."""
        if not self.is_set:
            return
        for slot, version in zip(self._slots, self._versions):
            if slot.parameter._version != version:
                raise _written_error(slot)

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
        self._versions = [slot.parameter._version for slot in self._slots]
        self._bucket.flat.zero_()

    def hide(self) -> None:
        """No gradient for the torch optimizer: the step was made."""
        for slot in self._slots:
            slot.parameter.grad = None


def plain_option(value: Any) -> Any:
    """Its numbers, which nobody changes in their place."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    return tuple(map(plain_option, value)) if isinstance(value, (list, tuple)) else value


def _option_error(slot: Slot, option: str, now: Any, told: Any) -> InvalidError:
    return bad_argument(
        f"{option} of parameter '{slot.name}' is {now} now, and shards step with {option}={told}, as it was when the "
        "optimizer was made distributed",
        "leave it as it was (OneCycleLR and CyclicLR: cycle_momentum=False), or make a new optimizer and call "
        "DistributedOptimizer() again",
    )


def _written_error(slot: Slot) -> InvalidError:
    return bad_argument(
        f"parameter '{slot.name}' was written to after the last step, and shards hold it: the next step would lose it",
        "call load_shard_state({}) on all ranks, which gives shards the parameters of rank 0, or flush(), which gives "
        "ranks those of the shards; to write in every step, use a mode in which ranks step",
    )


def _left_group_error(slot: Slot) -> InvalidError:
    return bad_argument(
        f"the optimizer lacks '{slot.name}' or others of its group now, and shards step on all of them",
        "remove whole groups, or make a new optimizer and call DistributedOptimizer() again",
    )


def set_parameters(buckets: Iterable[ShardParameters]) -> None:
    """Of those whose shards do not have them yet. All are begun before any is waited for, for ranks
    may come to them in different orders."""
    unset = [bucket for bucket in buckets if not bucket.is_set]
    for bucket in unset:
        bucket.start_setting()
    for bucket in unset:
        bucket.finish_setting()

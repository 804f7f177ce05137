"""Buckets that carry parameters instead of gradients: for modes in which ranks step on their own.

The parameters stay where they are; a bucket is filled before an exchange and read after it, once in
many steps. Elements travel as float32 (float64 for float64), so that the mean of half-precision
parameters is rounded once, when it is put back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import torch

from ... import _core
from ..._layout import DTYPES, BucketPlan, ParameterInfo, plan_buckets
from ..._ops import Average
from .._gpu.staging import refuse_several_devices
from .parameter_info import NamedParameter, info_of, real_count, shaped_as
from .registered import Registered

# Gives an info the compression of its parameter.
Compress = Callable[[ParameterInfo, torch.Tensor], ParameterInfo]


class ParameterSlot:
    """A parameter's place in a bucket, and in private vectors of the same layout."""

    def __init__(
        self, name: str, parameter: torch.nn.Parameter, offset: int, flat: torch.Tensor
    ) -> None:
        self.name = name
        self.parameter = parameter
        self._range = slice(offset, offset + real_count(parameter))
        self.view = self.of(flat)

    def of(self, vector: torch.Tensor) -> torch.Tensor:
        """This parameter's elements of a vector that is laid out as the bucket is."""
        return shaped_as(self.parameter, vector[self._range])


class ParameterBucket(Registered):
    """With slots."""

    def __init__(
        self,
        core: _core.Bucket,
        plan: BucketPlan,
        named: Sequence[NamedParameter],
        timeout_ms: int,
    ) -> None:
        super().__init__(core, named[plan.slots[0].index][1], timeout_ms)
        self.compressed = plan.compression != "none"
        self.slots = [ParameterSlot(*named[s.index], s.offset, self.flat) for s in plan.slots]

    @property
    def names(self) -> list[str]:
        """Of its parameters."""
        return [slot.name for slot in self.slots]

    def wait(self) -> None:
        """The result is in flat. After a TimeoutError it may be called again."""
        self.finish()
        self.copy_back()

    def element_views(self) -> list[tuple[str, torch.Tensor]]:
        """By parameter: its part of flat, in its shape."""
        return [(slot.name, slot.view) for slot in self.slots]

    def private(self) -> torch.Tensor:
        """Zeros, laid out as this bucket is."""
        return torch.zeros_like(self.flat)

    def copy_parameters(self, vector: torch.Tensor) -> None:
        """Puts the parameters into a vector of this layout."""
        for slot in self.slots:
            slot.of(vector).copy_(slot.parameter)

    def set_parameters_to(self, vector: torch.Tensor) -> None:
        """Takes the parameters from a vector of this layout."""
        for slot in self.slots:
            slot.parameter.copy_(slot.of(vector))

    # ---- for averaging and gossip

    def hand_over_copy(self, vector: torch.Tensor) -> None:
        """Begins a round with these elements."""
        self.flat.copy_(vector)
        self.hand_over()

    def subtract(self, vector: torch.Tensor) -> None:
        """From what is in flat."""
        self.flat.sub_(vector)

    def add(self, other: ParameterBucket) -> None:
        """To what is in flat: what is in another one's."""
        self.flat.add_(other.flat)

    def move_parameters(self, share: float) -> None:
        """Adds ``share`` times flat, which is changed."""
        self.flat.mul_(share)
        for slot in self.slots:
            slot.parameter.add_(slot.view)

    def set_parameters(self) -> None:
        """To what is in flat."""
        self.set_parameters_to(self.flat)


def register(
    named: Sequence[NamedParameter],
    bucket_bytes: int,
    prefix: str,
    session: _core.Session,
    compress: Compress | None = None,
) -> list[ParameterBucket]:
    """Buckets for these parameters, averaged over the ranks; every rank must register the same.

    Raises InvalidError (dtype, device), MismatchError naming the bucket when ranks differ.
    """
    refuse_several_devices(named)
    infos = []
    for name, parameter in named:
        info = _widened(info_of(name, parameter))
        infos.append(info if compress is None else compress(info, parameter))
    plans = plan_buckets(infos, bucket_bytes, prefix)
    specs = [
        (
            plan.name, plan.count, DTYPES[plan.dtype][1], int(Average),
            plan.compression, plan.columns, "sync",
        )
        for plan in plans
    ]  # fmt: skip
    cores = session.register_buckets(specs)
    timeout = session.op_timeout_ms
    return [ParameterBucket(core, plan, named, timeout) for core, plan in zip(cores, plans)]


def _widened(info: ParameterInfo) -> ParameterInfo:
    dtype = "float64" if info.dtype == "float64" else "float32"
    return dataclasses.replace(info, dtype=dtype)

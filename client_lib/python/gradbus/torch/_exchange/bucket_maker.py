"""Makes the buckets of one exchange: which parameters share one, how it is registered, and who steps it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from ... import _core
from ..._layout import DTYPES, BucketPlan, ParameterInfo, layout_option, plan_buckets
from ..._ops import Average, Sum
from ..._process_sets import ProcessSet, session_of
from .._buckets.delay_compensation import Compensation, DelayCompensation
from .._buckets.gradient_buckets import Bucket
from .._buckets.parameter_info import (
    NamedParameter,
    in_float32,
    info_of,
    sparse_on_device_error,
    with_compression,
)
from .._buckets.shard_parameters import ShardParameters
from .._gpu.staging import refuse_several_devices, try_devices, uuid_for_rank_buffers
from .._schedules import Schedule
from .._tuning.codec_choice import parse_choice, with_gauge
from .._tuning.planning import StepPlan


@dataclasses.dataclass(frozen=True)
class ExchangedParameter:
    """A parameter whose gradients are exchanged, and how."""

    named: NamedParameter
    group: int  # of the optimizer
    mode: str  # those of different ones share no bucket
    async_ps: bool
    compensation: Compensation | None = None
    sparse: bool = False  # its gradients come sparse
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # of its group, with which shards step

    @property
    def registered_mode(self) -> str:
        """As gradbus_tensor_spec wants it, which steps no parameters."""
        return self.mode if self.compensation is None else f"delayed:k={self.compensation.delay}"


@dataclasses.dataclass(frozen=True)
class BucketMaker:
    """What the buckets of an exchange have in common."""

    op: int
    process_set: ProcessSet
    compression: str | None  # None: the job's policy
    bucket_bytes: int
    schedule: Schedule
    rescale_residual: bool = False  # when the learning rate changes
    reduce_in_float32: bool = False  # also what is not compressed
    # Parameters in the order in which backward finishes them; of others, the last one is first.
    arrival: Sequence[str] = ()
    plan: StepPlan | None = None  # of the coordinator: which parameters share a bucket

    def make(
        self, parameters: Sequence[ExchangedParameter], prefix: str, placement: int
    ) -> list[Bucket]:
        """Registers them; every rank must make the same ones."""
        session = session_of(self.process_set, "DistributedOptimizer")
        named = [parameter.named for parameter in parameters]
        refuse_several_devices(named)
        infos = [self._info(parameter, session) for parameter in parameters]
        plans = plan_buckets(infos, self.bucket_bytes, prefix, self._fill_order(infos), self._groups(infos))
        for plan in plans:
            if self._tells_used(plan):
                plan.append_flags()
        firsts = [parameters[plan.slots[0].index] for plan in plans]
        specs = [
            (
                plan.name, plan.count, DTYPES[plan.dtype][1], self.op,
                plan.compression, plan.columns, first.registered_mode + _layout_option(first, plan, named),
            )
            for plan, first in zip(plans, firsts)
        ]  # fmt: skip
        devices = [
            uuid_for_rank_buffers(first.named[1], plan.compression, first.registered_mode)
            for plan, first in zip(plans, firsts)
        ]
        try_devices(session, devices)
        priorities = [self.schedule.priorities(i, len(plans)) for i in range(len(plans))]
        # What is late by design, or held by shards, would keep the budget.
        budgets = [self.schedule.budget_bytes if plan.mode == "sync" else 0 for plan in plans]
        cores = session.register_buckets(specs, devices, priorities, budgets)
        buckets = []
        for core, plan, first, spec in zip(cores, plans, firsts, specs):
            bucket = Bucket(core, plan, named, session.op_timeout_ms)
            bucket.spec, bucket.placement, bucket.rescales = spec, placement, self.rescale_residual
            if first.async_ps:
                bucket.on_shards = ShardParameters(bucket, bucket.slots, first.options)
            if first.compensation is not None:
                bucket.compensation = DelayCompensation(
                    first.compensation, plan, [parameter for _, parameter in named], bucket.flat,
                    session.size if self.op == Sum else 1,
                )  # fmt: skip
            buckets.append(bucket)
        return buckets

    def _tells_used(self, plan: BucketPlan) -> bool:
        # Elsewhere a codec would change the flags, or they would be those of another step.
        dense = plan.compression == "none" and not plan.sparse
        return dense and plan.mode == "sync" and self.op in (Average, Sum)

    def _groups(self, infos: Sequence[ParameterInfo]) -> list[int] | None:
        if self.plan is None:
            return None
        return [self.plan.group_of.get(info.name, -1) for info in infos]

    def _fill_order(self, infos: Sequence[ParameterInfo]) -> list[int]:
        order = self.arrival if self.plan is None else self.plan.names
        places = {name: number for number, name in enumerate(order)}
        backwards = reversed(range(len(infos)))
        return sorted(backwards, key=lambda index: places.get(infos[index].name, len(places)))

    def _info(self, parameter: ExchangedParameter, session: _core.Session) -> ParameterInfo:
        name, tensor = parameter.named
        converts = not (parameter.async_ps or parameter.sparse)
        info = with_compression(self.compression, session, info_of(name, tensor), tensor, converts, self._chosen)
        if converts and self.reduce_in_float32:
            info = in_float32(info)
        if parameter.sparse and info.count and tensor.dim() > 1:
            if info.device != "cpu" and not parameter.async_ps:
                raise sparse_on_device_error(name, tensor)
            # Of shards that step come whole parameters: what is sparse then is what travels.
            info = dataclasses.replace(
                info, compression=self._of_sparse(info), sparse=not parameter.async_ps
            )
        if self.plan is not None and self.plan.group_of.get(name, -1) in self.plan.dense and not parameter.sparse:
            info = dataclasses.replace(info, compression="none", columns=0)
        by_group = self.rescale_residual or parameter.async_ps
        return dataclasses.replace(
            info, mode=parameter.mode, group=parameter.group if by_group else 0
        )

    def _chosen(self, name: str, choice: str) -> str:
        codecs = parse_choice(choice).codecs  # raises at the start for a wrong choice of the policy, on all ranks
        plan = self.plan
        codec = None if plan is None else plan.codecs.get(plan.group_of.get(name, -1))
        return with_gauge(codec, plan.gauge_every) if plan and codec in codecs else "none"

    def _of_sparse(self, info: ParameterInfo) -> str:
        # Rows lose nothing, so they need no leave of the policy.
        silent = self.compression is None and info.compression == "none"
        return "rows" if silent and info.dtype == "float32" else info.compression


def _layout_option(first: ExchangedParameter, plan: BucketPlan, named: Sequence[NamedParameter]) -> str:
    if not first.async_ps:
        return ""
    parameters = [named[slot.index] for slot in plan.slots]
    return layout_option([(name, tuple(tensor.shape)) for name, tensor in parameters])

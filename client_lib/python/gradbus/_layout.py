"""Which parameter's gradient lies where: the same on every rank, computed without asking anyone.

Pure functions of the parameters' names, dtypes and sizes. Buckets are filled in reverse order of the
parameters, since backward finishes the last layer first; the first bucket of a dtype is small, so
that communication starts early. Slots begin at multiples of 64 bytes, as torch's own tensors do.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

FIRST_BUCKET_BYTES = 1 << 20
# Where backward() waits. With 25 MiB a step of ResNet-18 at 1 Gbit/s took 1.3 times as long; elsewhere the same.
DEFAULT_BUCKET_BYTES = 8 << 20
SLOT_ALIGNMENT_BYTES = 64
COMPRESSED_ELEMENTS_MIN = 16 << 10  # as common/policy/tensor_rules.h
NAME_BYTES_MAX = 255  # of gradbus_tensor_spec
DELAY_SLOT_BYTES = 3  # "@64": what the delay slots of a delayed tensor append to its name

# What is broadcast travels joined up to this size; larger arrays travel alone. It bounds the extra memory.
JOINED_BYTES_MAX = 64 << 20

MATRIX_CODECS = ("powersgd", "rows")
ROUNDING_CODECS = ("none", "fp16", "bf16")  # of float32 to half precision, or not at all
LAMB = "optimizer=lamb"  # of a mode of shards: a step's length is that of a layer

# name in torch -> (short name, number in gradbus.h, bytes of an element)
DTYPES = {
    "float32": ("f32", 1, 4),
    "float64": ("f64", 2, 8),
    "float16": ("f16", 3, 2),
    "bfloat16": ("bf16", 4, 2),
}
HALVES = ("float16", "bfloat16")
Kind = tuple[str, str, int, str, str, str]
# Complex numbers travel as pairs of these.
PAIRS_OF = {"complex64": "float32", "complex128": "float64"}


@dataclass(frozen=True)
class ParameterInfo:
    """What the layout depends on."""

    name: str
    dtype: str  # of its elements; of a complex parameter: of their parts
    count: int  # of real numbers
    compression: str = "none"
    columns: int = 0  # of the tensor seen as a matrix; 0: a vector
    group: int = 0  # parameter group, where what is done depends on its learning rate
    mode: str = "sync"  # as gradbus_tensor_spec wants it
    sparse: bool = False  # its gradients come sparse
    device: str = "cpu"  # the type alone: ranks may number theirs as they like
    is_complex: bool = False
    gradient_dtype: str = ""  # of the gradient, where it is converted to `dtype` for the exchange

    @property
    def kind(self) -> Kind:
        """Gradients of one kind share buckets."""
        return (self.dtype, self.compression, self.group, self.mode, self.device, self.gradient_dtype)

    @property
    def needs_matrix(self) -> bool:
        """The codec looks at the tensor's shape, so it cannot share a bucket."""
        return self.compression.partition(":")[0] in MATRIX_CODECS

    @property
    def stays_alone(self) -> bool:
        """It shares no bucket."""
        return self.needs_matrix or self.sparse or LAMB in self.mode.split(",")


@dataclass(frozen=True)
class SlotPlan:
    """Parameter number `index` occupies [offset, offset + count) elements of its bucket."""

    index: int
    offset: int
    count: int


@dataclass
class BucketPlan:
    """One registered tensor: its name, dtype and slots, last parameter first."""

    dtype: str
    compression: str = "none"
    columns: int = 0
    group: int = 0
    mode: str = "sync"
    sparse: bool = False
    device: str = "cpu"
    gradient_dtype: str = ""
    count: int = 0
    slots: list[SlotPlan] = field(default_factory=list)
    name: str = ""
    flags_start: int | None = None  # of one element a slot, behind all slots

    def append(self, index: int, count: int, is_complex: bool = False) -> None:
        """Adds a slot behind the others: right behind where a gap would be compressed, too."""
        self.count += self.count % 2 if is_complex else 0  # torch wants pairs at even places
        self.slots.append(SlotPlan(index, self.count, count))
        dense = self.compression == "none"
        step = SLOT_ALIGNMENT_BYTES // DTYPES[self.dtype][2] if dense else 1
        self.count += -(-count // step) * step

    def append_flags(self) -> None:
        """Adds an element for each slot. Nothing is appended after it."""
        self.flags_start = self.count
        self.count += len(self.slots)


def plan_buckets(
    parameters: Sequence[ParameterInfo],
    bucket_bytes: int,
    prefix: str,
    arrival: Sequence[int] | None = None,
    groups: Sequence[int] | None = None,
) -> list[BucketPlan]:
    """Buckets in the order in which they become full.

    ``arrival``: the parameters in the order in which backward finishes them; None: from last to first.
    ``groups``: by parameter, those of one number share a bucket, whatever their size.
    """
    plans: list[BucketPlan] = []
    filling: dict[Kind, BucketPlan] = {}
    group_of: dict[int, int] = {}  # by id of a plan
    for index in reversed(range(len(parameters))) if arrival is None else arrival:
        info = parameters[index]
        if info.stays_alone:
            plans.append(_lone_plan(index, info))
            continue
        plan = filling.get(info.kind)
        group = 0 if groups is None else groups[index]
        fits = plan is not None and group_of[id(plan)] == group
        if fits and groups is None:
            assert plan is not None
            fits = not _is_full(plan, info, plans, bucket_bytes)
        if plan is None or not fits:
            plan = filling[info.kind] = BucketPlan(
                info.dtype, info.compression, group=info.group, mode=info.mode, device=info.device,
                gradient_dtype=info.gradient_dtype,
            )  # fmt: skip
            plans.append(plan)
            group_of[id(plan)] = group
        plan.append(index, info.count, info.is_complex)
    for number, plan in enumerate(plans):
        plan.name = _bucket_name(prefix, number, plan, parameters)
    return plans


def _lone_plan(index: int, info: ParameterInfo) -> BucketPlan:
    plan = BucketPlan(
        info.dtype, info.compression, info.columns, info.group, info.mode, info.sparse, info.device,
        info.gradient_dtype,
    )  # fmt: skip
    plan.append(index, info.count)
    plan.count = info.count  # no padding: rows and columns are the tensor's
    return plan


def _is_full(
    plan: BucketPlan, info: ParameterInfo, plans: list[BucketPlan], bucket_bytes: int
) -> bool:
    like = (info.dtype, info.device)
    is_first = next(other for other in plans if (other.dtype, other.device) == like) is plan
    limit = min(FIRST_BUCKET_BYTES, bucket_bytes) if is_first else bucket_bytes
    return (plan.count + info.count) * DTYPES[info.dtype][2] > limit


def _bucket_name(
    prefix: str, number: int, plan: BucketPlan, parameters: Sequence[ParameterInfo]
) -> str:
    # First and last parameter, so that an error about this tensor says which layers it is about.
    first, last = parameters[plan.slots[-1].index].name, parameters[plan.slots[0].index].name
    name = f"{prefix}/{DTYPES[plan.dtype][0]}/{number}:{first}..{last}"
    return cut_name(name, NAME_BYTES_MAX - DELAY_SLOT_BYTES)


def cut_name(name: str, bytes_max: int = NAME_BYTES_MAX) -> str:
    """At most `bytes_max` bytes of UTF-8, cut between characters."""
    return name.encode()[:bytes_max].decode(errors="ignore")


NamedArrays = list[tuple[str, Any]]


def joined_batches(named: Sequence[tuple[str, Any]], bytes_of: Callable[[Any], int]) -> list[NamedArrays]:
    """Arrays to broadcast, in order: of one dtype each, of at most JOINED_BYTES_MAX unless it is a single array.

    ``named``: pairs of name and array or tensor.
    """
    batches: list[NamedArrays] = []
    filling: dict[Any, tuple[NamedArrays, int]] = {}
    for name, array in named:
        size = bytes_of(array)
        batch, used = filling.get(array.dtype, ([], 0))
        if not batch or used + size > JOINED_BYTES_MAX:
            batch, used = [], 0
            batches.append(batch)
        batch.append((name, array))
        filling[array.dtype] = (batch, used + size)
    return batches


def joined_name(what: str, dtype: str, elements: int, batch: Sequence[tuple[str, Any]]) -> str:
    """Of the operation that carries a batch."""
    return with_layout(f"{what}/{dtype}/{elements}:{batch[0][0]}..{batch[-1][0]}", batch)


def with_layout(text: str, named: Sequence[tuple[str, Any]]) -> str:
    """A name of an operation, with a hash of the names and shapes of the arrays that it carries, in their order.

    Ranks with other arrays have another name, and get an error.
    """
    facts = "".join(f"{name} {tuple(array.shape)}," for name, array in named)
    digest = f"#{zlib.crc32(facts.encode()):08x}"
    return cut_name(text, NAME_BYTES_MAX - len(digest)) + digest


def layout_option(parameters: Sequence[tuple[str, tuple[int, ...]]]) -> str:
    """Of the mode of a tensor on shards, which see by it that a snapshot holds other parameters of the same size.

    ``parameters``: names and shapes, in the order of the tensor's slots.
    """
    return f",layout={zlib.crc32(repr(list(parameters)).encode()) % 0xFFFF + 1}"

"""The exchange of many gradients in few operations: what all front ends but that of PyTorch share.

A front end gives the names, shapes and dtypes of its gradients once, and NumPy views of their memory in every
step. Gradients of one dtype share registered tensors, as in ``gradbus.torch`` (``_layout.py``). The job's policy
(``gradbus run --mode``, ``--compression``) is asked for each gradient by its name. Where its mode keeps gradients
local, the front end hands over the parameters before and after each step (``_modes/arrays.py``). Where shards hold
the parameters, it hands over both (``_modes/array_shards.py``).
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import itertools
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from . import _core
from ._data_movement import broadcast_
from ._differentiable import grouped_allgather
from ._errors import bad_argument
from ._layout import (
    COMPRESSED_ELEMENTS_MIN,
    DEFAULT_BUCKET_BYTES,
    DTYPES,
    HALVES,
    ROUNDING_CODECS,
    BucketPlan,
    ParameterInfo,
    cut_name,
    joined_batches,
    joined_name,
    plan_buckets,
    with_layout,
)
from ._modes.exchange_guard import ExchangeGuard
from ._modes.kinds import ModeKind, is_local, is_on_shards
from ._modes.memory import memory_of
from ._objects import compare_lists
from ._ops import Average, ReduceOp, Sum, checked_compression, checked_factor, checked_op, is_choice
from ._process_sets import ProcessSet, global_process_set, session_of
from ._reductions import allreduce_


class Gradient(NamedTuple):
    """What the exchange of one gradient depends on. The same on every rank."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def elements(self) -> int:
        """How many it has."""
        return math.prod(self.shape)

    def __str__(self) -> str:
        return f"'{self.name}' {self.dtype}{list(self.shape)}"


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a front end exchanges the gradients of one optimizer."""

    op: ReduceOp = Average
    compression: str | None = None  # None: the job's policy
    process_set: ProcessSet = global_process_set
    bucket_bytes: int = DEFAULT_BUCKET_BYTES
    has_parameters: bool = False  # the front end hands over parameters, too
    recovery: str = "broadcast the parameters and make a new optimizer"  # on all ranks, after one gave up an exchange


def settings_of(
    verb: str,
    op: int = Average,
    compression: Any = None,
    process_set: ProcessSet = global_process_set,
    gradient_predivide_factor: float = 1.0,
    bucket_bytes: int = DEFAULT_BUCKET_BYTES,
) -> Settings:
    """The arguments that all front ends have, checked.

    ``gradient_predivide_factor`` needs a mean and changes nothing: a mean overflows only where it does itself, or with
    ``"fp16"`` between nodes where the sum of the ranks is above 65504.
    """
    chosen = checked_op(op, verb, (Average, Sum))
    if checked_factor(gradient_predivide_factor, "gradient_predivide_factor", verb) != 1 and chosen is not Average:
        raise bad_argument(
            f"{verb}: gradient_predivide_factor={gradient_predivide_factor!r} needs a mean", "pass op=gradbus.Average"
        )
    if not isinstance(bucket_bytes, int) or bucket_bytes < 1:
        raise bad_argument(f"{verb}: bucket_bytes={bucket_bytes!r}", "pass a number of bytes, or leave it out")
    return Settings(chosen, checked_compression(compression, verb), process_set, bucket_bytes)


_numbers: dict[str, itertools.count[int]] = {}


def new_prefix(what: str) -> str:
    """A name for the tensors of one more optimizer: ``what0``, ``what1``, ... in the order of the calls."""
    return f"{what}{next(_numbers.setdefault(what, itertools.count()))}"


def compression_of(gradient: Gradient, settings: Settings, session: _core.Session) -> str:
    dims = max(1, len(gradient.shape))
    if settings.compression is None:
        asked = session.compression_for(gradient.name, gradient.elements, dims)
        return "none" if is_choice(asked) else asked  # only PyTorch's optimizer measures steps
    worth = len(gradient.shape) > 1 and gradient.elements >= COMPRESSED_ELEMENTS_MIN
    return settings.compression if worth else "none"


def mode_of(gradient: Gradient, settings: Settings, session: _core.Session) -> _core.Mode:
    """As the job's policy has it. Raises InvalidError where this front end cannot carry it out."""
    mode = session.mode_for(gradient.name, gradient.elements, max(1, len(gradient.shape)))
    if keeps_gradients(mode):
        _check_parameter(gradient, settings, mode)
    elif mode.kind == ModeKind.DELAYED and mode.dc:
        raise bad_argument(
            f"gradient '{gradient.name}': mode {mode.text} is implemented for PyTorch only",
            "use another mode with this framework, such as delayed:k=1 or ps:sync, or gradbus.torch",
        )
    return mode


def keeps_gradients(mode: _core.Mode) -> bool:
    """Gradients are not exchanged: ranks exchange parameters, or shards hold these and step."""
    return is_local(mode) or is_on_shards(mode)


def _check_parameter(gradient: Gradient, settings: Settings, mode: _core.Mode) -> None:
    if not settings.has_parameters:
        does = "exchanges parameters" if is_local(mode) else "keeps parameters on shards"
        raise bad_argument(
            f"gradient '{gradient.name}': mode {mode.text} {does}, and here Gradbus sees gradients only",
            "use the distributed optimizer of gradbus.keras, gradbus.jax or gradbus.mxnet, or mode sync",
        )
    if is_local(mode) and settings.op is not Average:
        raise bad_argument(
            f"gradient '{gradient.name}': mode {mode.text} with op={settings.op.name}", "pass op=gradbus.Average"
        )
    if is_on_shards(mode) and gradient.dtype != "float32":
        raise bad_argument(
            f"parameter '{gradient.name}' has dtype {gradient.dtype}, and shards step on float32 (mode {mode.text})",
            "make it float32, or give it mode ps:sync in a policy",
        )


def info_of(gradient: Gradient, settings: Settings, session: _core.Session) -> ParameterInfo:
    """As _layout.py wants it. Halves that a codec shrinks are converted to float32 for the exchange."""
    if gradient.dtype not in DTYPES:
        raise bad_argument(
            f"gradient '{gradient.name}' has dtype {gradient.dtype}", f"use one of {', '.join(DTYPES)}"
        )
    mode = mode_of(gradient, settings, session)
    info = ParameterInfo(gradient.name, gradient.dtype, gradient.elements, mode=mode.text)
    if gradient.dtype not in ("float32", *HALVES) or not gradient.elements:
        return info
    codec = compression_of(gradient, settings, session)
    is_rounding = codec.partition(":")[0] in ROUNDING_CODECS
    if codec == "none" or (gradient.dtype in HALVES and is_rounding):
        return info
    columns = gradient.elements // gradient.shape[0] if len(gradient.shape) > 1 else 0
    return dataclasses.replace(info, dtype="float32", compression=codec, columns=columns)


def _elements_of(bucket: _core.Bucket, dtype: str) -> list[Any]:
    """The registered tensor's elements as a NumPy array over shared memory, for each delay slot."""
    wanted = bfloat16() if dtype == "bfloat16" else np.dtype(dtype)
    words = ctypes.c_uint8 * wanted.itemsize
    return [np.frombuffer(memory, np.uint8).view(wanted) for memory in memory_of(bucket, words)]


@functools.cache
def bfloat16() -> Any:
    """The dtype that JAX and TensorFlow add to NumPy."""
    import ml_dtypes

    return np.dtype(ml_dtypes.bfloat16)


class _Bucket:
    """A registered tensor and its gradients: (number of the gradient, its view)."""

    def __init__(self, core: _core.Bucket, plan: BucketPlan, gradients: Sequence[tuple[int, Gradient]]) -> None:
        self.core = core
        self._views = [self._views_of(flat, plan, gradients) for flat in _elements_of(core, plan.dtype)]

    def _views_of(
        self, flat: Any, plan: BucketPlan, gradients: Sequence[tuple[int, Gradient]]
    ) -> list[tuple[int, Any]]:
        flat[...] = 0  # gaps between gradients, too
        views = []
        for slot in plan.slots:
            number, gradient = gradients[slot.index]
            views.append((number, flat[slot.offset : slot.offset + slot.count].reshape(gradient.shape)))
        return views

    @property
    def views(self) -> list[tuple[int, Any]]:
        """Of the delay slot that is filled next. After a wait the result is there."""
        return self._views[self.core.delay_slot]


class GradientExchange:
    """The gradients of one optimizer. All ranks make one with the same arguments; it waits for them.

    ``run`` copies gradients into shared memory, starts each tensor as soon as it is full, and copies results out.
    One thread at a time. Raises InvalidError, MismatchError, PeerLostError, TimeoutError; then, or after Ctrl-C, each
    later run() raises BusyError: other ranks may have stepped on the result that this one gave up.
    """

    def __init__(self, gradients: Sequence[Gradient], prefix: str, settings: Settings) -> None:
        session = session_of(settings.process_set, "exchange of gradients")
        stays = [keeps_gradients(mode_of(gradient, settings, session)) for gradient in gradients]
        self._local = [number for number, is_here in enumerate(stays) if is_here]
        shared = [(number, gradient) for number, gradient in enumerate(gradients) if not stays[number]]
        infos = [info_of(gradient, settings, session) for _, gradient in shared]
        # Tensors are registered by their numbers of elements, which two models may share.
        compare_lists([*map(str, gradients)], "gradient", prefix, settings.process_set)
        plans = plan_buckets(infos, settings.bucket_bytes, prefix)
        specs = [
            (plan.name, plan.count, DTYPES[plan.dtype][1], int(settings.op), plan.compression, plan.columns, plan.mode)
            for plan in plans
        ]
        cores = session.register_buckets(specs)
        self._buckets = [_Bucket(core, plan, shared) for core, plan in zip(cores, plans)]
        self._guard = ExchangeGuard(
            f"rank {session.rank} gave up an exchange of the gradients of '{prefix}'",
            settings.recovery,
        )

    def run(self, given: Sequence[Any], results: Sequence[Any]) -> None:
        """``results``: writable arrays of the gradients' shapes and dtypes; they may be ``given`` themselves."""
        with self._guard.turn():
            arrays = [np.asarray(array) for array in given]  # reading may fail: before others can have a part of it
            with self._guard.exchange():
                self._exchange(arrays, results)

    def _exchange(self, arrays: Sequence[Any], results: Sequence[Any]) -> None:
        for bucket in self._buckets:
            for index, view in bucket.views:
                np.copyto(view, arrays[index], casting="unsafe")
            bucket.core.start()
        for bucket in self._buckets:
            bucket.core.wait()
            for index, view in bucket.views:
                np.copyto(results[index], view, casting="unsafe")
        for index in self._local:
            np.copyto(results[index], arrays[index])


Exchange = TypeVar("Exchange")


class Exchanges(Generic[Exchange]):
    """Those of a process, made when they are first used. They end with the session."""

    def __init__(self, make: Callable[[Sequence[Gradient], str, Settings], Exchange]) -> None:
        self._make = make
        self._made: dict[Any, Exchange] = {}
        self._lock = threading.Lock()

    def of(self, prefix: str, settings: Settings, gradients: Sequence[Gradient]) -> Exchange:
        """The one for these gradients, in an optimizer named ``prefix``."""
        session = id(session_of(settings.process_set, prefix))
        key = (session, prefix, settings.op, settings.compression, settings.bucket_bytes, tuple(gradients))
        with self._lock:
            found = self._made.get(key)
        if found is None:  # not under the lock: it waits for other ranks, which may come to another one first
            found = self._make(gradients, prefix, settings)
            settings.process_set._before_close(lambda _: self._forget(session))
            with self._lock:
                self._made[key] = found
        return found

    def _forget(self, session: int) -> None:
        """Those of one session. Members alone close a process set: exchanges of other sets must stay."""
        with self._lock:
            self._made = {key: made for key, made in self._made.items() if key[0] != session}


EXCHANGES: Exchanges[GradientExchange] = Exchanges(GradientExchange)


def exchange(named: Sequence[tuple[str, Any]], prefix: str, settings: Settings, results: Sequence[Any]) -> None:
    """Writes the combined gradients of all ranks to ``results``; ``named``: pairs of name and NumPy array."""
    gradients = [Gradient(name, tuple(array.shape), str(array.dtype)) for name, array in named]
    EXCHANGES.of(prefix, settings, gradients).run([array for _, array in named], results)


def exchange_rows(name: str, rows: Any, values: Any, settings: Settings) -> tuple[Any, Any]:
    """A sparse gradient: all ranks' row numbers and rows joined. A mean divides the rows."""
    size = session_of(settings.process_set, name).size
    all_rows, all_values = grouped_allgather([rows, values], cut_name(name), settings.process_set)
    return all_rows, all_values / np.asarray(size, all_values.dtype) if settings.op is Average else all_values


def broadcast_arrays(
    what: str, named: Sequence[tuple[str, Any]], root_rank: int, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """The root's arrays, as new ones, in few operations. Names, shapes and dtypes are the same on every rank."""
    received: dict[str, Any] = {}
    arrays = [(name, np.asarray(array)) for name, array in named]
    for batch in joined_batches(arrays, lambda array: int(array.nbytes)):
        joined = np.concatenate([array.reshape(-1) for _, array in batch])
        name = joined_name(what, joined.dtype.name, joined.size, batch)
        broadcast_(joined, root_rank, name, process_set)
        ends = itertools.accumulate(array.size for _, array in batch)
        for (one, array), end in zip(batch, ends):
            received[one] = joined[end - array.size : end].reshape(array.shape)
    return [received[name] for name, _ in named]


def average_metrics(
    metrics: Mapping[str, Any], name: str, process_set: ProcessSet = global_process_set
) -> dict[str, Any]:
    """The mean of each number over all ranks, in one operation; arrays of numbers by their elements.

    What is neither stays out. Raises MismatchError if ranks have other metrics.
    """
    arrays = {key: np.asarray(metrics[key]) for key in sorted(metrics)}
    arrays = {key: array for key, array in arrays.items() if _has_numbers(array)}
    if not arrays:
        return {}
    values = np.concatenate([array.reshape(-1).astype(np.float64) for array in arrays.values()])
    allreduce_(values, with_layout(f"{name}:{','.join(arrays)}", [*arrays.items()]), Average, process_set=process_set)
    parts = np.split(values, np.cumsum([array.size for array in arrays.values()])[:-1])
    return {
        key: part.reshape(array.shape) if array.shape else float(part[0])
        for (key, array), part in zip(arrays.items(), parts)
    }


def _has_numbers(array: Any) -> bool:
    return bool(array.size) and (array.dtype.kind in "biuf" or array.dtype.name == "bfloat16")


def unique_names(names: Sequence[str]) -> list[str]:
    """Names in their order; the second of a name gets a number."""
    seen: dict[str, int] = {}
    made = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        made.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return made


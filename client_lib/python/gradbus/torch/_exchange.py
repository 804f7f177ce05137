"""The gradients of one optimizer: born in shared memory, exchanged while backward still runs.

Each parameter has a slot of a registered bucket; its ``.grad`` is a view of the slot, so autograd
accumulates straight into shared memory. A hook counts the slots of a bucket; the last one starts the
exchange (wait-free backpropagation). synchronize() starts what backward did not fill and waits.

Invariants: between start and the end of the wait the bucket belongs to Gradbus, nothing here touches
it; every rank starts every bucket once per round, whatever its parameters did. The thread that runs
backward and the one that calls step may differ but never overlap.
"""

from __future__ import annotations

import dataclasses
import itertools
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from .. import _core
from .._errors import BusyError, ClosedError, bad_argument
from .._process_sets import ProcessSet, session_of
from ._layout import COMPRESSED_ELEMENTS_MIN, DTYPES, BucketPlan, ParameterInfo, plan_buckets

NamedParameter = tuple[str, torch.nn.Parameter]


class Slot:
    """A parameter's place in a bucket."""

    def __init__(self, name: str, parameter: torch.nn.Parameter, view: torch.Tensor) -> None:
        self.name = name
        self.parameter = parameter
        self.view = view
        self.passes_left = 0
        # False until the first gradient arrived: that one is copied, which also tells us whether it
        # is sparse (added to a dense view it would pass unnoticed); later ones are born in place.
        self.adopted = False

    def adopt(self) -> None:
        """Makes ``.grad`` the view, with the values that ``.grad`` has now (None: zeros)."""
        grad = self.parameter.grad
        if grad is self.view:
            return
        if grad is None:
            self.view.zero_()
        elif grad.layout != torch.strided:
            raise bad_argument(
                f"parameter '{self.name}' has a sparse gradient ({grad.layout})",
                "build its layer with sparse=False",
            )
        else:
            self.view.copy_(grad.detach())
        self.point()

    def point(self) -> None:
        """Makes ``.grad`` the view; a parameter frozen meanwhile is left alone."""
        if self.parameter.requires_grad:
            self.parameter.grad = self.view
            self.adopted = True


class Bucket:
    """One registered tensor and its slots."""

    def __init__(
        self, core: _core.Bucket, plan: BucketPlan, named: Sequence[NamedParameter]
    ) -> None:
        self.core = core
        self.flat: torch.Tensor = torch.from_dlpack(core.view())  # type: ignore[attr-defined]
        self.slots = [self._slot(named[slot.index], slot.offset, slot.count) for slot in plan.slots]
        self.slots_left = 0
        self.started = False

    def _slot(self, named: NamedParameter, offset: int, count: int) -> Slot:
        name, parameter = named
        return Slot(name, parameter, self.flat[offset : offset + count].view(parameter.shape))

    def begin_round(self, passes: int) -> None:
        """Forgets what has arrived."""
        self.slots_left = len(self.slots)
        self.started = False
        for slot in self.slots:
            slot.passes_left = passes

    def start(self) -> None:
        """Hands the bucket to Gradbus."""
        self.core.start()
        self.started = True


class GradientExchange:
    """All buckets of one optimizer; one round ends with each synchronize()."""

    def __init__(
        self,
        passes: int,
        bucket_bytes: int,
        op: int,
        prefix: str,
        process_set: ProcessSet,
        compression: str | None = None,
    ) -> None:
        self._passes = passes
        self._bucket_bytes = bucket_bytes
        self._op = op
        self._prefix = prefix
        self._process_set = process_set
        self._compression = compression  # None: the job's policy
        self._additions = itertools.count()
        self._buckets: list[Bucket] = []
        self._parameters: set[torch.nn.Parameter] = set()
        self._hooks: list[Any] = []
        self._synchronized = False
        self._detached = False
        _detach_before_close(self, process_set)

    @property
    def buckets(self) -> Sequence[Bucket]:
        """In the order in which backward fills them."""
        return self._buckets

    def add(self, named: Sequence[NamedParameter]) -> None:
        """Registers buckets for more parameters; every rank must add the same ones.

        Raises InvalidError (dtype, device), MismatchError naming the bucket when ranks differ.
        """
        if self._in_flight():
            raise _in_flight_error("parameters cannot be added")
        number = next(self._additions)
        prefix = self._prefix if number == 0 else f"{self._prefix}+{number}"
        session = session_of(self._process_set, "DistributedOptimizer")
        infos = [self._with_compression(_info(*pair), pair[1], session) for pair in named]
        plans = plan_buckets(infos, self._bucket_bytes, prefix)
        specs = [
            (
                plan.name, plan.count, DTYPES[plan.dtype][1], self._op,
                plan.compression, plan.columns,
            )
            for plan in plans
        ]  # fmt: skip
        for core, plan in zip(session.register_buckets(specs), plans):
            bucket = Bucket(core, plan, named)
            bucket.begin_round(self._passes)
            self._buckets.append(bucket)
            for slot in bucket.slots:
                self._watch(bucket, slot)

    def _with_compression(
        self, info: ParameterInfo, parameter: torch.Tensor, session: _core.Session
    ) -> ParameterInfo:
        # Biases, norms and small matrices stay dense, as in DGC: bytes are not what they cost.
        if info.dtype != "float32" or not info.count:
            return info
        if self._compression is None:
            chosen = session.compression_for(info.name, info.count, max(1, parameter.dim()))
        else:
            worth = parameter.dim() > 1 and info.count >= COMPRESSED_ELEMENTS_MIN
            chosen = self._compression if worth else "none"
        columns = info.count // parameter.shape[0] if parameter.dim() > 1 else 0
        return dataclasses.replace(info, compression=chosen, columns=columns)

    def _watch(self, bucket: Bucket, slot: Slot) -> None:
        self._parameters.add(slot.parameter)
        # A weak reference: the hook lives as long as the parameter, the optimizer may go earlier.
        exchange = weakref.ref(self)

        def on_gradient() -> None:
            self_ = exchange()
            if self_ is not None:
                self_._on_gradient(bucket, slot)

        self._hooks.append(_after_accumulation(slot.parameter, on_gradient))

    def _on_gradient(self, bucket: Bucket, slot: Slot) -> None:
        if slot.passes_left == 0:
            raise _in_flight_error(
                f"parameter '{slot.name}' got more than backward_passes_per_step={self._passes} gradients"
            )
        with torch.no_grad():
            slot.adopt()
        self._synchronized = False
        slot.passes_left -= 1
        if slot.passes_left == 0:
            bucket.slots_left -= 1
            if bucket.slots_left == 0:
                bucket.start()

    @property
    def process_set(self) -> ProcessSet:
        """Whose ranks exchange."""
        return self._process_set

    @property
    def detached(self) -> bool:
        """True after shutdown(): the shared memory is gone."""
        return self._detached

    def _refuse_when_detached(self) -> None:
        if self._detached:
            raise ClosedError(
                "GB-O900 BAD_ARGUMENT: the session of this optimizer was shut down | next: call "
                "gradbus.init() and DistributedOptimizer() again"
            )

    def _in_flight(self) -> bool:
        return any(bucket.started for bucket in self._buckets)

    @torch.no_grad()
    def synchronize(self, all_parameters: Iterable[torch.Tensor] = ()) -> None:
        """After this every ``.grad`` is the result. Nothing happens when it already is.

        A parameter without a gradient (``.grad`` is None) takes part with zeros. After a TimeoutError
        it may be called again.
        """
        self._refuse_when_detached()
        if self._synchronized:
            return
        self._refuse_strangers(all_parameters)
        for bucket in self._buckets:
            if not bucket.started:
                for slot in bucket.slots:
                    slot.adopt()
                bucket.start()
        for bucket in self._buckets:
            bucket.core.wait()
        for bucket in self._buckets:
            for slot in bucket.slots:
                slot.point()
            bucket.begin_round(self._passes)
        self._synchronized = True

    def _refuse_strangers(self, all_parameters: Iterable[torch.Tensor]) -> None:
        for parameter in all_parameters:
            if parameter.grad is not None and parameter not in self._parameters:
                raise bad_argument(
                    f"a parameter of shape {tuple(parameter.shape)} has a gradient but did not "
                    "require one when the optimizer was made distributed",
                    "unfreeze it before, or give it to add_param_group() on every rank",
                )

    def end_round(self) -> None:
        """The results were used; the next synchronize() exchanges again."""
        self._synchronized = False

    @torch.no_grad()
    def zero(self) -> None:
        """Zeroes every bucket and keeps ``.grad`` in it; ends an exchange that is under way first."""
        self._refuse_when_detached()
        if self._in_flight():
            self.synchronize()
        for bucket in self._buckets:
            bucket.begin_round(self._passes)
            bucket.flat.zero_()
            for slot in bucket.slots:
                slot.parameter.grad = slot.view if slot.adopted else None
        self._synchronized = False

    def owns(self, parameter: torch.Tensor) -> bool:
        """True when the parameter has a slot here."""
        return parameter in self._parameters

    def detach(self, process_goes_on: bool) -> None:
        """Lets go of shared memory, which is about to be unmapped."""
        self._detached = True
        for hook in self._hooks:
            hook.remove()
        for bucket in self._buckets:
            for slot in bucket.slots:
                if slot.parameter.grad is slot.view:
                    slot.parameter.grad = slot.view.clone() if process_goes_on else None


def _detach_before_close(exchange: GradientExchange, process_set: ProcessSet) -> None:
    reference = weakref.ref(exchange)

    def detach(process_goes_on: bool) -> None:
        alive = reference()
        if alive is not None:
            alive.detach(process_goes_on)

    process_set._before_close(detach)


def _info(name: str, parameter: torch.nn.Parameter) -> ParameterInfo:
    dtype = str(parameter.dtype).replace("torch.", "")
    if dtype not in DTYPES:
        raise bad_argument(
            f"parameter '{name}' has dtype {dtype}", f"use one of {', '.join(DTYPES)}"
        )
    if parameter.device.type != "cpu":
        raise bad_argument(
            f"parameter '{name}' is on {parameter.device}, not in host memory",
            "train on the CPU; this version has no GPU path",
        )
    return ParameterInfo(name, dtype, parameter.numel())


def _in_flight_error(what: str) -> BusyError:
    return BusyError(
        f"GB-O905 IN_FLIGHT: {what} while gradients are being exchanged | next: call step(), "
        "synchronize() or zero_grad() first, or raise backward_passes_per_step"
    )


def _after_accumulation(parameter: torch.nn.Parameter, call: Callable[[], None]) -> Any:
    """Has ``call()`` run whenever backward has accumulated into ``parameter.grad``."""
    register = getattr(parameter, "register_post_accumulate_grad_hook", None)
    if register is not None:  # torch >= 2.1
        return register(lambda _: call())
    # Older: the node that accumulates is reachable through any function of the parameter.
    function: Any = parameter.expand_as(parameter).grad_fn
    node = function.next_functions[0][0]
    return _NodeHook(node, node.register_hook(lambda *_: call()))


class _NodeHook:
    """Keeps the accumulating node alive: the parameter holds it only weakly."""

    def __init__(self, node: Any, hook: Any) -> None:
        self._node = node
        self._hook = hook

    def remove(self) -> None:
        self._hook.remove()
        self._node = None

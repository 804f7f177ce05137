"""DistributedOptimizer: any torch optimizer, stepping on the mean gradient of all ranks."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from .._errors import bad_argument
from .._ops import Average, Sum, checked_compression, checked_op
from .._process_sets import ProcessSet, global_process_set, session_of
from .._reductions import allreduce
from ._exchange import GradientExchange, NamedParameter
from ._layout import DEFAULT_BUCKET_BYTES

# Numbers the optimizers of this process, so that two of them (a GAN) never share buckets. Ranks make
# their optimizers in the same order; if they do not, registration reports the names.
_optimizer_numbers = itertools.count()

Closure = Callable[[], Any]


class _State:
    """What a distributed optimizer has besides its own attributes."""

    def __init__(self, exchange: GradientExchange, inner_step: Callable[..., Any]) -> None:
        self.exchange = exchange
        self.inner_step = inner_step
        self.skip_synchronize = False


class _Distributed:
    """The methods that go in front of the optimizer's own. See DistributedOptimizer."""

    _gradbus: _State
    param_groups: list[dict[str, Any]]

    def synchronize(self) -> None:
        """Waits for the exchange: after it every ``.grad`` is the result. step() does it by itself.

        Call it to read or clip gradients before step(). Raises MismatchError, PeerLostError,
        TimeoutError (may be called again).
        """
        self._gradbus.exchange.synchronize(_parameters_of(self))

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """In this block step() uses the gradients as they are, without an exchange."""
        self._gradbus.skip_synchronize = True
        try:
            yield
        finally:
            self._gradbus.skip_synchronize = False

    def step(self, closure: Closure | None = None) -> Any:
        """One step of the wrapped optimizer after synchronize(); with a closure, each evaluation
        of it is followed by one."""
        state = self._gradbus
        try:
            if state.skip_synchronize:
                return state.inner_step() if closure is None else state.inner_step(closure)
            if closure is not None:
                return state.inner_step(functools.partial(_evaluate, self, closure))
            self.synchronize()
            return state.inner_step()
        finally:
            state.exchange.end_round()

    step.hooked = True  # type: ignore[attr-defined]  # torch's step hooks run in the inner step

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Zeroes the gradients; ``.grad`` stays a view of shared memory for both values of
        ``set_to_none`` (which then matters only to frozen parameters)."""
        exchange = self._gradbus.exchange
        exchange.zero()
        for parameter in _parameters_of(self):
            if parameter.grad is not None and not exchange.owns(parameter):
                if set_to_none:
                    parameter.grad = None
                else:
                    parameter.grad.detach_().zero_()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As torch's. Every rank must add the same group; its gradients are exchanged from now on."""
        super().add_param_group(param_group)  # type: ignore[misc]
        number = len(self.param_groups) - 1
        self._gradbus.exchange.add(_numbered(self.param_groups[number], number))

    def __reduce__(self) -> tuple[Any, ...]:
        """A copied or unpickled optimizer is a plain one: hooks and shared memory stay here."""
        plain = _plain_class(type(self))
        state = {key: self.__dict__[key] for key in ("defaults", "state", "param_groups")}
        return (plain.__new__, (plain,), state)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return self.__reduce__()


def _plain_class(distributed: type) -> type:
    return distributed.__mro__[2]  # after the distributed class and _Distributed


@functools.cache
def _distributed_class(plain: type) -> type:
    return type(f"Distributed{plain.__name__}", (_Distributed, plain), {"__module__": __name__})


def _evaluate(optimizer: Any, closure: Closure) -> Any:
    loss = closure()
    optimizer.synchronize()
    process_set = optimizer._gradbus.exchange.process_set
    # A line search branches on the loss, so ranks must see the same one to take the same branch.
    if isinstance(optimizer, torch.optim.LBFGS) and isinstance(loss, torch.Tensor):
        return allreduce(loss.detach(), name="lbfgs/loss", process_set=process_set)
    return loss


def _parameters_of(optimizer: Any) -> Iterator[torch.Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]


def _numbered(group: dict[str, Any], number: int) -> list[NamedParameter]:
    return [
        (f"group{number}.{index}", parameter)
        for index, parameter in enumerate(group["params"])
        if parameter.requires_grad
    ]


def _named(
    optimizer: torch.optim.Optimizer, names: Iterable[tuple[str, Any]]
) -> list[NamedParameter]:
    """The optimizer's trainable parameters in the order of `names`."""
    ours = {id(p): p for p in _parameters_of(optimizer) if p.requires_grad}
    named: dict[str, torch.nn.Parameter] = {}
    for name, parameter in names:
        if ours.pop(id(parameter), None) is None:
            continue  # frozen, of another optimizer, or shared and already named
        if name in named:
            raise bad_argument(
                f"DistributedOptimizer: two parameters are named '{name}'",
                "give each model its own prefix",
            )
        named[name] = parameter
    if ours:
        shapes = ", ".join(str(tuple(p.shape)) for p in ours.values())
        raise bad_argument(
            f"DistributedOptimizer: {len(ours)} parameters have no name; their shapes: {shapes}",
            "pass the named_parameters() of the whole model",
        )
    return list(named.items())


def _all_named(
    optimizer: torch.optim.Optimizer, names: Iterable[tuple[str, Any]] | None
) -> list[NamedParameter]:
    if names is not None:
        return _named(optimizer, names)
    groups = enumerate(optimizer.param_groups)
    return [pair for number, group in groups for pair in _numbered(group, number)]


def _check_arguments(optimizer: Any, backward_passes_per_step: int, bucket_bytes: int) -> None:
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise bad_argument(
            f"DistributedOptimizer: {type(optimizer).__name__} is no torch optimizer",
            "pass a torch.optim.Optimizer",
        )
    if isinstance(optimizer, _Distributed) and not optimizer._gradbus.exchange.detached:
        raise bad_argument("DistributedOptimizer: already distributed", "wrap an optimizer once")
    for name, value in (
        ("backward_passes_per_step", backward_passes_per_step),
        ("bucket_bytes", bucket_bytes),
    ):
        if not isinstance(value, int) or value < 1:
            raise bad_argument(f"DistributedOptimizer: {name}={value!r}", "pass a positive integer")


def DistributedOptimizer(  # used like a class, hence its name
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, Any]] | None = None,
    backward_passes_per_step: int = 1,
    bucket_bytes: int = DEFAULT_BUCKET_BYTES,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    compression: str | None = None,
) -> Any:
    """Makes the optimizer step on gradients that are averaged (or summed) over all ranks.

    The same object is returned, its class now a subclass of what it was, so learning-rate schedulers
    and references made before stay valid. Gradients live in shared memory from the second backward
    on and are exchanged while backward still runs; do not touch ``.grad`` between backward() and
    synchronize() or step(). All ranks must wrap the same parameters in the same order.

    Args:
        optimizer: any torch.optim.Optimizer over CPU parameters of float32, float64, float16 or
            bfloat16; frozen parameters (requires_grad False) are left alone.
        named_parameters: ``model.named_parameters()``, for readable errors; without it parameters
            are called ``group0.0``, ``group0.1``, ...
        backward_passes_per_step: backward() calls whose gradients add up locally before a step.
        bucket_bytes: gradients are exchanged in pieces of about this size (the first: 1 MiB).
        op: gradbus.Average or gradbus.Sum.
        process_set: whose ranks share this model; call it on its members only.
        compression: of float32 gradients between nodes, ``gradbus.Compression.fp16`` or a text such
            as ``"topk:ratio=0.01"``; parameters of one dimension or fewer than 16,384 elements stay
            dense. None: what the job's policy says (``gradbus run --compression``, ``--policy``).

    A parameter that no loss used counts as zero; its gradient is never None after a step.

    Raises InvalidError (names, dtype, device, arguments), MismatchError naming the bucket when ranks
    have different models, ExhaustedError (shared memory). From backward(): InvalidError for a sparse
    gradient, BusyError for more backward passes than announced.
    """
    _check_arguments(optimizer, backward_passes_per_step, bucket_bytes)
    if isinstance(optimizer, _Distributed):
        _take_away(optimizer)  # of a session that was shut down
    session_of(process_set, "DistributedOptimizer")  # refuse early when init() is missing
    named = _all_named(optimizer, named_parameters)
    number = next(_optimizer_numbers)
    exchange = GradientExchange(
        backward_passes_per_step,
        bucket_bytes,
        checked_op(op, "DistributedOptimizer", (Average, Sum)),
        "grad" if number == 0 else f"grad{number}",
        process_set,
        checked_compression(compression, "DistributedOptimizer"),
    )
    exchange.add(named)
    _put_in_front(optimizer, exchange)
    return optimizer


def _put_in_front(optimizer: Any, exchange: GradientExchange) -> None:
    # A scheduler made earlier has put its counting wrapper into the instance: keep it innermost.
    counted = optimizer.__dict__.pop("step", None)
    plain = type(optimizer)
    inner = counted if counted is not None else functools.partial(plain.step, optimizer)
    optimizer.__class__ = _distributed_class(plain)  # type: ignore[arg-type,unused-ignore]
    optimizer._gradbus = _State(exchange, inner)
    if counted is not None:
        # The copied attributes tell the scheduler that its wrapper is still in place.
        step = functools.partial(_Distributed.step, optimizer)
        optimizer.step = functools.update_wrapper(step, counted)


def _take_away(optimizer: Any) -> None:
    state = optimizer.__dict__.pop("_gradbus")
    optimizer.__class__ = _plain_class(type(optimizer))
    if "step" in optimizer.__dict__:
        optimizer.step = state.inner_step

"""The exchange and the step behind DistributedOptimizer's step(): at once, in parts, or within a closure."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch

from .._differentiable import allreduce
from ._exchange.rounds import refuse_scaler
from ._exchangers import State, is_plain_step
from ._names import parameters_of
from ._partial_step import may_step_parts, step_nothing, step_part
from ._state_access import settle_before_use

Closure = Callable[[], Any]


def step_inside(optimizer: Any, closure: Closure | None) -> Any:
    """What the wrapped optimizer's step() returns; None if parts of it were left to the next forward pass."""
    state = optimizer._gradbus
    state.by_hand.why_whole_step = "" if closure is None else "step() got a closure"
    if closure is None and _leaves_parts(optimizer, state):
        settle_before_use(optimizer)
        part = step_part(optimizer, state.plain_class)
        state.exchange.defer_step(part, optimizer, parameters_of(optimizer))
        return step_nothing(optimizer, state.inner_step)
    if state.by_hand.skips:
        return state.inner_step() if closure is None else state.inner_step(closure)
    if closure is not None:
        return state.inner_step(functools.partial(_evaluate, optimizer, closure))
    synchronize(optimizer, is_step=True)
    return state.inner_step()


def _leaves_parts(optimizer: Any, state: State) -> bool:
    """Whether parameters are stepped when they are used next. Notes what speaks against it."""
    if not state.exchange.is_deferred:
        state.by_hand.why_whole_step = "results were waited for before step()"
        return False
    if not _may_step_parts(optimizer, state):
        state.by_hand.why_whole_step = "somebody takes part in step(), or would see an earlier parameter"
        return False
    if not state.exchange.deferred.is_open:
        state.by_hand.why_whole_step = "gradients were read before step(), or are kept"
    return True


def _may_step_parts(optimizer: Any, state: State) -> bool:
    return (
        not state.by_hand.skips
        and not state.local.names
        and is_plain_step(state.inner_step, state.plain_class)
        and may_step_parts(optimizer, state.plain_class)
    )


# A GradScaler asks in its step() whether the optimizer unscales by itself. Its unscale_() asks nothing.
_SCALES = "_step_supports_amp_scaling"


def amp_scaling_after(check: Callable[[Any], None]) -> property:
    """The answer of the wrapped optimizer, after ``check``. That one raises where a scaler must not step."""

    def answer(optimizer: Any) -> bool:
        check(optimizer)
        of_classes = (vars(kind)[_SCALES] for kind in type(optimizer).__mro__ if _SCALES in vars(kind))
        plain = next((value for value in of_classes if not isinstance(value, property)), False)
        return bool(optimizer.__dict__.get(_SCALES, plain))

    return property(answer, lambda optimizer, value: optimizer.__dict__.update({_SCALES: value}))


def _refuse_scaler(optimizer: Any) -> None:
    state = optimizer._gradbus
    refuse_scaler(state.exchange.rounds, state.by_hand.skips)


amp_scaling = amp_scaling_after(_refuse_scaler)


def warn_after_synchronize(state: State) -> None:
    """At the begin of a step, as Horovod does. ``stacklevel`` names the caller of step()."""
    if state.by_hand.synchronized and state.settings.warns_after_synchronize and not state.by_hand.skips:
        warnings.warn(
            "optimizer.step() called without optimizer.skip_synchronize() after optimizer.synchronize(): Gradbus"
            " exchanges gradients once, but Horovod would do it twice",
            stacklevel=3,
        )
    state.by_hand.synchronized = False


def synchronize(optimizer: Any, is_step: bool) -> None:
    """Every ``.grad`` is the result afterwards."""
    state = optimizer._gradbus
    exchanged = parameters_of(optimizer)
    if state.local.names:
        exchanged = [p for p in exchanged if not state.local.owns(p)]
    state.exchange.synchronize(exchanged, is_step)


def _evaluate(optimizer: Any, closure: Closure) -> Any:
    loss = closure()
    synchronize(optimizer, is_step=True)
    exchange = optimizer._gradbus.exchange
    # A line search branches on the loss, so ranks must see the same one to take the same branch;
    # ranks that search on their own need not.
    if not isinstance(optimizer, torch.optim.LBFGS) or not exchange.buckets:
        return loss
    is_tensor = isinstance(loss, torch.Tensor)
    own = loss.detach() if is_tensor else torch.tensor(float(loss), dtype=torch.float64, device="cpu")
    op = optimizer._gradbus.settings.op  # that of the gradients
    shared = allreduce(own, name="lbfgs/loss", op=op, process_set=exchange.process_set)
    return shared if is_tensor else float(shared)


def step_on_delayed(optimizer: Any) -> int:
    """Steps on the results that modes with a delay have left; how many steps that took. Raises as flush()."""
    state = optimizer._gradbus
    steps = 0
    while state.exchange.drain():
        with state.local.without_gradients():
            state.inner_step()
        steps += 1
    state.exchange.end_round()
    return steps

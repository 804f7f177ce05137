"""Several wrappers of the same parameters, one after another: the newest one has them.

A new torch optimizer and a new DistributedOptimizer for each epoch is a common way to change the learning rate. The
earlier wrapper then releases its hooks, its buckets and their shared memory, and its step() raises ClosedError. A
wrapper that is garbage-collected releases the same (GradientExchange.__del__).

Nothing here communicates: ranks collect garbage at different times, so one rank may still have a wrapper that
another one has lost.
"""

from __future__ import annotations

import warnings
import weakref
from typing import TYPE_CHECKING

from .._errors import BusyError
from ._buckets.retire import retire_collected

if TYPE_CHECKING:
    from ._exchangers import State

_known: list[weakref.ref[State]] = []  # oldest first


def take_over(new: State, who: str) -> None:
    """Releases the earlier wrappers of these parameters; ``who``: the new one, for their errors.

    Raises BusyError between backward() and step() of an earlier one.
    """
    retire_collected()
    taken = {id(parameter) for (_, parameter), _ in new.parameters}
    alive = [state for reference in _known if (state := reference()) is not None]
    for old in alive:
        if old is not new and any(id(parameter) in taken for (_, parameter), _ in old.parameters):
            _release(old, who)
    _known[:] = [weakref.ref(state) for state in alive if not state.exchange.detached]
    if all(state is not new for state in alive):
        _known.append(weakref.ref(new))


def _release(old: State, who: str) -> None:
    if old.exchange.detached:
        return
    old.exchange.settle()
    if old.exchange.in_flight:
        raise BusyError(
            "GB-O905 IN_FLIGHT: DistributedOptimizer() is called while gradients of an earlier one, of the same "
            "parameters, are being exchanged | next: call step() or zero_grad() of the earlier one first"
        )
    if not old.local.settled or old.exchange.has_undrained:
        warnings.warn(
            "gradbus: a newer DistributedOptimizer takes parameters over whose last exchange was not finished: call "
            "flush() of the earlier one first, on every rank",
            stacklevel=5,
        )
    old.release(
        f"{who} took over the parameters of this optimizer",
        "step with the newest DistributedOptimizer of a model, and drop the earlier ones",
    )

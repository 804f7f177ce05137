"""Several wrappers of the same parameters, one after another: the newest one has them.

A new torch optimizer and a new DistributedOptimizer for each epoch is a common way to change the learning rate. The
earlier wrapper then releases its hooks, its buckets and their shared memory, and its step() raises ClosedError. A
wrapper that is garbage-collected releases the same (GradientExchange.__del__).

Nothing here communicates: ranks collect garbage at different times, so one rank may still have a wrapper that
another one has lost.
"""

from __future__ import annotations

import weakref
from collections.abc import Set
from typing import Any, Protocol

from .._errors import BusyError
from ._buckets.retire import retire_collected

GONE = "this optimizer is gone | next: keep a reference to it, or call DistributedOptimizer() again"


class Wrapper(Protocol):
    """What has made an optimizer a distributed one."""

    @property
    def is_released(self) -> bool:
        """It exchanges nothing any more."""

    def holds(self, parameters: Set[int]) -> bool:
        """Whether one of these is its own; they are told by id()."""

    def give_up(self, who: str) -> None:
        """Releases all; ``who`` has the parameters now. Raises BusyError between its backward() and step()."""


_known: list[weakref.ref[Wrapper]] = []  # oldest first


def take_over(new: Wrapper, parameters: Set[int], who: str) -> None:
    """Releases the earlier wrappers of these parameters; ``who``: the new one, for their errors.

    Raises BusyError between backward() and step() of an earlier one.
    """
    retire_collected()
    alive = [wrapper for reference in _known if (wrapper := reference()) is not None]
    for old in alive:
        if old is not new and not old.is_released and old.holds(parameters):
            old.give_up(who)
    _known[:] = [weakref.ref(wrapper) for wrapper in alive if not wrapper.is_released]
    if all(wrapper is not new for wrapper in alive):
        _known.append(weakref.ref(new))


def release_collected(optimizer: Any) -> None:
    """Of a distributed one that is being collected: its parameters get the last step, and its exchange goes.

    Proxies of Lightning inherit __del__() and pass attributes on; they, and copies of the dictionary, are not the one.
    """
    state = optimizer.__dict__.get("_gradbus")
    if state is not None and (state.optimizer is None or state.optimizer is optimizer):
        state.exchange.settle_for_good(optimizer)
        state.exchange.release(GONE, collected=True)


def why_given_up(who: str) -> str:
    """For the errors of a wrapper that was released."""
    return (
        f"{who} took over the parameters of this optimizer | next: step with the newest DistributedOptimizer of a "
        "model, and drop the earlier ones"
    )


def busy_error() -> BusyError:
    """The earlier wrapper cannot give up now."""
    return BusyError(
        "GB-O905 IN_FLIGHT: DistributedOptimizer() is called while gradients of an earlier one, of the same "
        "parameters, are being exchanged | next: call step() or zero_grad() of the earlier one first"
    )

"""Step hooks of a sharded optimizer: they see the parameters and their gradients, not this rank's shares.

torch runs hooks around the plain step, within which the optimizer's groups hold shares. So the sharded step() runs them
itself, around the whole of it, and the plain one finds none.
"""

from __future__ import annotations

import collections
import contextlib
import importlib
from collections.abc import Iterable, Iterator
from typing import Any

_MODULE = importlib.import_module("torch.optim.optimizer")  # torch.optim deletes the name
_PLACES = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")  # of an optimizer, from torch 2.0 on
_GLOBAL_PLACES = ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks")  # of torch.optim.optimizer


class StepHooks:
    """Those that one step() has to run."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        of_all = [getattr(_MODULE, place, {}) for place in _GLOBAL_PLACES]
        own = [optimizer.__dict__.get(place, {}) for place in _PLACES]
        # In torch's order: the ones of all optimizers come first before a step, and last after it.
        self._before = [*of_all[0].values(), *own[0].values()]
        self._after = [*own[1].values(), *of_all[1].values()]

    def run_before(self) -> None:
        """A hook may change gradients. What it returns has no use: the plain step has no arguments."""
        for hook in self._before:
            hook(self._optimizer, (self._optimizer,), {})

    def run_after(self) -> None:
        """All ranks have the new parameters."""
        for hook in self._after:
            hook(self._optimizer, (self._optimizer,), {})

    def aside(self) -> contextlib.AbstractContextManager[None]:
        """In this block torch finds none."""
        own = [(self._optimizer.__dict__, place) for place in _PLACES]
        return aside([*own, *((vars(_MODULE), place) for place in _GLOBAL_PLACES)])


@contextlib.contextmanager
def aside(places: Iterable[tuple[dict[str, Any], str]]) -> Iterator[None]:
    """In this block there are no hooks in these places: a dictionary of attributes, and a name in it."""
    held = [(names, place, names[place]) for names, place in places if place in names]
    for names, place, _ in held:
        names[place] = collections.OrderedDict()
    try:
        yield
    finally:
        for names, place, hooks in held:
            names[place] = hooks

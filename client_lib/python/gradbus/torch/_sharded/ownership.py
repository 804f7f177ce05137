"""Which optimizer has the hooks of a parameter, and when it exchanges: at the end of backward(). Main thread, and
autograd's threads for hooks.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Iterator, Set
from typing import Any

import torch

from ..._process_sets import ProcessSet
from .._buckets.detach import closed_error
from .._buckets.retire import retire_names
from .._exchange.backward import BackwardEnd, next_order
from .._exchange.hooks import has_later_ones
from .._takeover import busy_error, take_over, why_given_up
from .gradients import take_out
from .pieces import Piece


class PassEnd:
    """Tells an optimizer of the end of each backward() that brought it gradients."""

    def __init__(self, optimizer: Any) -> None:
        self.order = next_order()
        self._optimizer = weakref.ref(optimizer)
        self._end = BackwardEnd(self)

    def expect(self) -> None:
        """Within backward(): there is a gradient."""
        if self._end.pending() is None:
            self._end.expect()

    def exchange_begin(self) -> None:
        """All gradients of this pass are there."""
        optimizer = self._optimizer()
        if optimizer is not None:
            optimizer._end_pass()

    def exchange_end(self) -> None:
        """All optimizers have begun."""
        optimizer = self._optimizer()
        if optimizer is not None and optimizer._is_due:
            with torch.no_grad():
                optimizer.synchronize()


class Ownership:
    """Of one optimizer: its hooks on its parameters, until a newer wrapper takes them or the optimizer is gone."""

    def __init__(self, process_set: ProcessSet) -> None:
        self._process_set = process_set
        self._pieces: list[Piece] = []
        self._hooks: dict[int, Any] = {}  # by id of the parameter
        self._why_released = ""

    def take(self, optimizer: Any) -> None:
        """Its parameters are this one's; an earlier wrapper of one gives up."""
        self._pieces = optimizer._pieces
        self._remove_hooks()
        parameters = {id(parameter) for piece in self._pieces for parameter in piece.parameters}
        take_over(self, parameters, f"a newer DistributedOptimizer ({type(optimizer).__bases__[1].__name__})")
        self._hooks = dict(_hook(optimizer))

    @property
    def is_released(self) -> bool:
        """A newer wrapper has the parameters."""
        return bool(self._why_released)

    def refuse_when_released(self) -> None:
        """Raises ClosedError."""
        if self.is_released:
            raise closed_error(self._why_released)

    def holds(self, parameters: Set[int]) -> bool:
        """Whether one of these is its own; they are told by id()."""
        return any(id(parameter) in parameters for piece in self._pieces for parameter in piece.parameters)

    def give_up(self, who: str) -> None:
        """Another wrapper has these parameters from here on. Raises BusyError between backward() and step()."""
        if any(piece.is_started for piece in self._pieces):
            raise busy_error()
        self._why_released = why_given_up(who)
        self._let_go()

    def _let_go(self) -> None:
        self._remove_hooks()
        for piece in self._pieces:
            take_out(piece.parameters)
        retire_names([name for piece in self._pieces for name in sorted(piece.names)], self._process_set)
        self._pieces = []

    def _remove_hooks(self) -> None:
        for hook in self._hooks.values():
            hook.remove()
        self._hooks = {}

    def has_later_hooks(self, parameter: Any) -> bool:
        """Whether hooks of a user still run for a gradient that has just arrived."""
        return has_later_ones(parameter, self._hooks[id(parameter)])

    def __del__(self) -> None:
        # The optimizer is gone. Its hooks are the parameters', which live on.
        with contextlib.suppress(Exception):
            self._let_go()


def _hook(optimizer: Any) -> Iterator[tuple[int, Any]]:
    """Exchanges begin in backward() where torch has hooks for it (2.1 and newer), else in step()."""
    reference = weakref.ref(optimizer)  # a hook lives as long as its parameter

    def arrived(parameter: torch.Tensor, piece: weakref.ref[Piece]) -> None:
        itself, its_piece = reference(), piece()
        if itself is not None and its_piece is not None:
            itself._arrived(its_piece, parameter)

    for piece in optimizer._pieces:
        for parameter in piece.parameters:
            register = getattr(parameter, "register_post_accumulate_grad_hook", None)
            if register is not None:
                yield id(parameter), register(functools.partial(arrived, piece=weakref.ref(piece)))

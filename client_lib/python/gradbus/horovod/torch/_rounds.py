"""How a rank that has joined takes part in the exchanges of an optimizer of PyTorch."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from ..._errors import bad_argument
from ...torch._exchange.rounds import end_unused
from ...torch._modes.local_modes import kept_in_step
from ...torch._rebuild import resume
from ...torch._step import step_on_delayed


class OptimizerRounds:
    """The optimizer may be deleted at any time."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = weakref.ref(optimizer)

    def refuse_join(self) -> None:
        optimizer = self._optimizer()
        if optimizer is None or optimizer._gradbus.exchange.detached:
            return
        name = kept_in_step(optimizer._gradbus.local)
        if name is not None:
            raise bad_argument(
                f"join: parameter '{name}' is in mode {optimizer.modes()[name]}, in which every rank makes the same "
                "number of steps",
                "give every rank as many batches, or use mode sync, delayed or averaging",
            )

    def settle(self) -> None:
        optimizer = self._optimizer()
        if optimizer is None:
            return
        exchange = optimizer._gradbus.exchange
        exchange.settle()
        if not exchange.detached:
            end_unused(exchange.rounds)

    def in_flight(self) -> int | None:
        optimizer = self._optimizer()
        if optimizer is None or optimizer._gradbus.exchange.detached:
            return None
        number: int | None = optimizer._gradbus.exchange.rounds.number_in_flight
        return number

    def number(self) -> int:
        optimizer = self._optimizer()
        if optimizer is None or optimizer._gradbus.exchange.detached:
            return 0
        exchanges: int = optimizer._gradbus.exchange.rounds.exchanges
        return exchanges

    @torch.no_grad()
    def with_zeros(self, number: int) -> _ZeroRound | None:
        optimizer = self._optimizer()
        if optimizer is None or optimizer._gradbus.exchange.detached:
            return None
        rounds = optimizer._gradbus.exchange.rounds
        return _ZeroRound(rounds, optimizer._gradbus) if rounds.begin_with_zeros(number) else None

    def all_joined(self) -> None:
        optimizer = self._optimizer()
        if optimizer is None:
            return
        if any(bucket.is_delayed for bucket in optimizer._gradbus.exchange.buckets):
            step_on_delayed(optimizer)
        resume(optimizer)


class _ZeroRound:
    def __init__(self, rounds: Any, state: Any) -> None:
        self._rounds = rounds
        self._state = state

    def poll(self) -> bool:
        return bool(self._rounds.test())

    @torch.no_grad()
    def wait(self, timeout_ms: int | None = None) -> None:
        self._rounds.end_with_zeros()
        self._state.steps += 1  # as on the others, which do things together every so many steps

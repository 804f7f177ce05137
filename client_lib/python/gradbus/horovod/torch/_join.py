"""join(): how a rank that has no more data takes part with zeros. What it takes part in: ``../_joining.py``."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from ... import _core, _data_movement, _how, _watch
from ..._errors import bad_argument
from ..._ops import ALL, ReduceOp
from ..._parts import Collective, Part, start_one
from ..._process_sets import global_process_set
from ..._session import before_close, current
from ..._watch import Replay
from .._joining import Joining


def make_join_possible() -> None:
    """Collective, at the end of init()."""
    session = current()
    if session.size == 1:
        return
    _watch.watch(Joining(session, _start_with_zeros))
    before_close(lambda _: _watch.watch(None))


def _joining() -> Joining | None:
    watcher = _watch.watcher
    return watcher if isinstance(watcher, Joining) and watcher.session is current() else None


def join(device: int = -1) -> int:
    """Waits until every rank has called it, and adds zeros to the sums and means of the others until then.

    A mean is divided by the number of all ranks. Other operations of the others raise MismatchError, as does a
    barrier. Operations of process sets are left alone. Returns the rank that joined last: it has made as many
    steps as any, so ``hvd.broadcast_parameters(model.state_dict(), root_rank=hvd.join())`` gives all its model.
    """
    if current().size == 1:
        return 0
    joining = _joining()
    if joining is None:
        raise bad_argument("join: gradbus.init() has opened this job", "call hvd.init() instead")
    return joining.join()


def exchanges_with_zeros(optimizer: Any) -> None:
    """From now on a rank that has joined takes part in the exchanges of this optimizer."""
    joining = _joining()
    if joining is not None and optimizer._gradbus.settings.process_set is global_process_set:
        joining.rounds.append(_OptimizerRounds(optimizer))


class _OptimizerRounds:
    """The optimizer may be deleted at any time."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = weakref.ref(optimizer)

    def settle(self) -> None:
        optimizer = self._optimizer()
        if optimizer is not None:
            optimizer._gradbus.exchange.settle()

    def in_flight(self) -> int | None:
        optimizer = self._optimizer()
        if optimizer is None or optimizer._gradbus.exchange.detached:
            return None
        number: int | None = optimizer._gradbus.exchange.rounds.number_in_flight
        return number

    @torch.no_grad()
    def with_zeros(self, number: int) -> _ZeroRound | None:
        optimizer = self._optimizer()
        if optimizer is None:
            return None
        rounds = optimizer._gradbus.exchange.rounds
        return _ZeroRound(rounds) if rounds.begin_with_zeros(number) else None


class _ZeroRound:
    def __init__(self, rounds: Any) -> None:
        self._rounds = rounds

    def poll(self) -> bool:
        return bool(self._rounds.test())

    @torch.no_grad()
    def wait(self, timeout_ms: int | None = None) -> None:
        self._rounds.end_with_zeros()


def _start_with_zeros(replay: Replay) -> Any:
    return start_one(current(), _part_of_zeros(replay, current()))


def _part_of_zeros(replay: Replay, session: _core.Session) -> Part:
    """This rank's part in an operation that it does not call: zeros, or no rows."""
    dtype = getattr(torch, replay.dtype)
    kind, name = Collective(replay.collective), replay.name
    if kind in (Collective.ALLGATHER, Collective.ALLTOALL):
        nothing = torch.empty((0, *replay.shape[1:]), dtype=dtype)
        if kind is Collective.ALLGATHER:
            return _data_movement.allgather_part(nothing, name)
        return _data_movement.alltoall_part(nothing, [0] * session.size, name, session.size)
    zeros = torch.zeros(replay.shape, dtype=dtype)
    if kind is Collective.BROADCAST:
        return _data_movement.broadcast_part(zeros, replay.root, name)
    how = _how.How(
        kind.name.lower(), global_process_set, ReduceOp(replay.op), replay.prescale, replay.postscale, ALL,
        replay.compression,
    )  # fmt: skip
    if kind is Collective.ALLREDUCE:
        return _how.allreduce_part(how, zeros, name)
    if kind is Collective.REDUCE:
        return _how.reduce_part(how, zeros, name, replay.root)
    return _how.reducescatter_part(how, zeros, name)

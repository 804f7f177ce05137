"""join(): how a rank that has no more data takes part with zeros. What it takes part in: ``_joining.py``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from .. import _core, _data_movement, _reduction_arguments, _watch
from .._errors import bad_argument
from .._ops import ALL, ReduceOp
from .._parts import Collective, Part, start_one
from .._process_sets import ProcessSet, global_process_set
from .._session import before_close, current
from .._watch import Replay
from ._joining import Joining, Rounds

MakeZeros = Callable[[Sequence[int], str], Any]  # from a shape and the name of a dtype: an array of the framework


def make_join_possible(zeros: MakeZeros, rounds: list[Rounds]) -> None:
    """Collective, at the end of init(). ``rounds``: of the optimizers that there are, and of those to come."""
    session = current()
    if session.size == 1:
        return
    _watch.watch(Joining(session, functools.partial(_start_with_zeros, zeros), rounds))
    before_close(lambda _: _watch.watch(None))


def _joining() -> Joining | None:
    watcher = _watch.watcher
    return watcher if isinstance(watcher, Joining) and watcher.session is current() else None


def join(device: int = -1) -> int:
    """Waits until every rank has called it, and adds zeros to the sums and means of the others until then.

    A mean is divided by the number of all ranks. Other operations of the others raise MismatchError, as does a
    barrier. Operations of process sets are left alone. Modes with a delay end what is in flight, as flush() does.
    Returns the rank that joined last: it has made as many steps as any, so
    ``hvd.broadcast_parameters(model.state_dict(), root_rank=hvd.join())`` gives all its model. Raises InvalidError at
    once for an optimizer in a mode in which ranks wait for each other's steps: localsgd, diloco, gossip with wait=1.
    """
    if current().size == 1:
        return 0
    joining = _joining()
    if joining is None:
        raise bad_argument("join: gradbus.init() has opened this job", "call hvd.init() instead")
    return joining.join()


def exchanges_with_zeros(rounds: Rounds, process_set: ProcessSet) -> None:
    """From now on a rank that has joined takes part in the exchanges of this optimizer."""
    joining = _joining()
    if joining is not None and process_set is global_process_set:
        joining.rounds.append(rounds)


def _start_with_zeros(zeros: MakeZeros, replay: Replay) -> Any:
    return start_one(current(), _part_of_zeros(zeros, replay, current()))


def _part_of_zeros(make: MakeZeros, replay: Replay, session: _core.Session) -> Part:
    """This rank's part in an operation that it does not call: zeros, or no rows."""
    kind, name = Collective(replay.collective), replay.name
    if kind in (Collective.ALLGATHER, Collective.ALLTOALL):
        nothing = make((0, *replay.shape[1:]), replay.dtype)
        if kind is Collective.ALLGATHER:
            return _data_movement.allgather_part(nothing, name)
        return _data_movement.alltoall_part(nothing, [0] * session.size, name, session.size)
    zeros = make(replay.shape, replay.dtype)
    if kind is Collective.BROADCAST:
        return _data_movement.broadcast_part(zeros, replay.root, name)
    how = _reduction_arguments.ReductionArguments(
        kind.name.lower(), global_process_set, ReduceOp(replay.op), replay.prescale, replay.postscale, ALL,
        replay.compression,
    )  # fmt: skip
    if kind is Collective.ALLREDUCE:
        return _reduction_arguments.allreduce_part(how, zeros, name)
    if kind is Collective.REDUCE:
        return _reduction_arguments.reduce_part(how, zeros, name, replay.root)
    return _reduction_arguments.reducescatter_part(how, zeros, name)

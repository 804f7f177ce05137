"""Jobs that outlive the restart of an agent: ``run`` and ``State``.

    @gradbus.elastic.run
    def train(state):
        while state.step < 1000:
            ...
            state.step += 1
            if state.step % 20 == 0:
                state.commit()

    train(gradbus.elastic.State(step=0, weights=weights))

When an agent or the network between agents is lost, the operations of all ranks fail. ``run`` then joins
the job again with the same processes, restores the values of the last commit and calls the function
again. ``gradbus.torch.ElasticState`` commits models and optimizers. See docs/how-to/train-elastically.md.
"""

from __future__ import annotations

import copy
import functools
import logging
import math
import os
import random
import time
from collections.abc import Callable
from typing import Any

from ._api import barrier
from ._errors import GradbusError, MismatchError, TimeoutError, bad_argument
from ._init import init, join_again
from ._objects import allgather_int, broadcast_object
from ._session import current, is_initialized, shutdown

__all__ = ["State", "run"]

TIMEOUT = "GRADBUS_ELASTIC_TIMEOUT"

# The coordinator is away: it may be started again.
_AWAY = "C501"
# What ends a job, or an operation, though all processes of the job live: an agent, a link, a shard or the
# coordinator is lost.
_RECOVERABLE = frozenset({"A301", _AWAY, "D604", "J410", "M004", "P102", "P103", "P104"})
# Of an operation of some ranks, on nodes that live, this may be what they hear first of such a loss.
_LEFT = "P105"
# After a loss: the job has begun again without its shards.
_WITHOUT_SHARDS = frozenset({"O911", "O912"})
# What a rank is told that comes back before others have, or its agent.
_TOO_EARLY = _RECOVERABLE | {_LEFT, "A300", "J402"}

_PAUSE_MIN_S, _PAUSE_MAX_S = 0.05, 1.0

_log = logging.getLogger("gradbus.elastic")

Function = Callable[..., Any]
Saved = dict[str, Any]  # by the value's name


class State:
    """Named values that a job can restore. Each is an attribute: ``State(step=0).step``.

    A commit stores a deep copy of each value, or of its ``state_dict()`` if it has one. Values may differ
    between ranks. When ``run`` begins, all ranks get those of rank 0.
    """

    def __init__(self, **values: Any) -> None:
        for name in values:
            if name.startswith("_") or hasattr(type(self), name):
                raise bad_argument(f"State: a value cannot be named '{name}'", "rename it")
        self._names = tuple(values)
        self._kept: dict[int, Saved] = {}  # commits by number; two while one is being made
        self._common = -1  # the newest that every rank is known to have
        self._after_loss = False  # until the values are those of a commit again
        for name, value in values.items():
            setattr(self, name, value)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"this State has no value '{name}': pass it to State()")

    def commit(self) -> None:
        """Stores the current values. Returns when every rank has stored its own.

        Every rank calls it after the same step. Raises what operations raise.
        """
        self._commit()

    def _commit(self) -> None:
        self._settle()
        self._keep()
        barrier()
        # Whoever is here knows that all ranks have this one: nobody goes back further.
        self._common += 1
        self._kept = {self._common: self._kept[self._common]}

    def restore(self) -> None:
        """Restores this rank's values of the last commit, while the session continues.

        Every rank calls it. After a loss, ``run`` restores them by itself.
        """
        if self._common < 0:
            raise bad_argument("State.restore: there is no commit yet", "call commit() before")
        self._settle()
        self._load(self._kept[self._common], self._common)

    def sync(self) -> None:
        """Gives all ranks the values of rank 0, as they are now, and commits them.

        After a loss, it restores the newest commit that all ranks have. ``run`` calls it before the function. Raises
        MismatchError when a new process lacks the commit of the others, and what operations raise.
        """
        if not self._after_loss:  # the values may be newer than the last commit, so nobody goes back to that
            self._kept.clear()
            self._common = min(self._common, 0)
        mine = max(self._kept, default=self._common) if self._after_loss else -1
        newest = allgather_int(mine, name="elastic/commits")
        common = min(newest)
        if common + 1 < max(newest):
            raise _no_common_commit(newest)
        if common in self._kept:
            self._kept = {common: self._kept[common]}
            self._common = common
            self.restore()
        else:
            self._begin()
        self._after_loss = False

    def _begin(self) -> None:
        """No commit is common: the ranks begin with the values of rank 0."""
        for number, saved in self._kept.items():  # not all ranks have kept these, so none has gone on from there
            self._load(saved, number)
        self._reset()
        self._share()
        self._commit()

    # ---- for kinds of values that need more

    def _settle(self) -> None:
        """Before a commit: nothing is under way."""

    def _reset(self) -> None:
        """A new session begins with the values that there are."""

    def _keep(self) -> None:
        """This rank's part of a commit."""
        self._kept[self._common + 1] = self._save()

    def _save(self) -> Saved:
        return {name: copy.deepcopy(_state_of(getattr(self, name))) for name in self._names}

    def _load(self, saved: Saved, number: int) -> None:
        """Those of commit ``number``."""
        for name in self._names:
            self._put(name, copy.deepcopy(saved[name]))

    def _put(self, name: str, value: Any) -> None:
        held = getattr(self, name)
        if _has_state(held):
            held.load_state_dict(value)
        else:
            setattr(self, name, value)

    def _share(self) -> None:
        """Rank 0's values for all."""
        mine = {name: _state_of(getattr(self, name)) for name in self._names}
        for name, value in broadcast_object(mine, name="elastic/values").items():
            self._put(name, value)


def _has_state(value: Any) -> bool:
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict")


def _state_of(value: Any) -> Any:
    return value.state_dict() if _has_state(value) else value


def _no_common_commit(newest: list[int]) -> MismatchError:
    fewest, most = newest.index(min(newest)), newest.index(max(newest))
    has = f"has commit {newest[fewest]}" if newest[fewest] >= 0 else "has no commit"
    return MismatchError(
        f"GB-M005 NO_COMMON_COMMIT: rank {fewest} {has}, rank {most} goes back to {newest[most]} | "
        "next: restart the whole job: a single process of it cannot be replaced"
    )


def run(
    function: Function | None = None, *, timeout: float | None = None, restarts_max: int = 10
) -> Any:
    """Decorates ``function(state, ...)``, so that it is called again after the loss of an agent.

    Args:
        timeout: seconds from a loss until all ranks are in the job again; default: the variable
            GRADBUS_ELASTIC_TIMEOUT (``gradbus run --elastic-timeout``), else 60. Ranks notice a
            loss at their next operation, so it must be longer than a step.
        restarts_max: how many losses in a row, without a commit between them, are survived.

    It calls ``init()`` if that was not called. Each call begins with ``state.sync()`` and ends with a barrier.
    Raises TimeoutError (GB-M006) if not all ranks return in time. Raises all other errors of the function,
    also the one for a rank that died, because no process replaces it.
    """
    if function is None:
        return functools.partial(run, timeout=timeout, restarts_max=restarts_max)
    wanted = function  # which is no more None

    @functools.wraps(wanted)
    def elastic(state: State, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(state, State):
            raise bad_argument(
                f"elastic.run: the first argument is a {type(state).__name__}, not a State",
                "pass gradbus.elastic.State(...) or gradbus.torch.ElasticState(...)",
            )
        patience = patience_of(timeout)
        _init(patience)
        return _run(
            functools.partial(wanted, state, *args, **kwargs), state, patience, restarts_max
        )

    return elastic


def patience_of(timeout: float | None) -> float:
    """Seconds until all ranks must be back, from the argument or the environment."""
    given: Any = os.environ.get(TIMEOUT, 60) if timeout is None else timeout
    try:
        seconds = float(given)
    except (TypeError, ValueError):
        seconds = math.nan
    if not 0 < seconds <= 1e7:
        raise bad_argument(
            f"elastic.run: timeout {given!r} is no positive number of seconds",
            f"pass timeout=60, or set {TIMEOUT}",
        )
    return seconds


def _init(patience: float) -> None:
    """init(), which waits for a coordinator that is away."""
    deadline = time.monotonic() + patience
    pause = _PAUSE_MIN_S
    while True:
        try:
            return init()
        except GradbusError as problem:
            if problem.id != _AWAY or time.monotonic() + pause > deadline:
                raise
        time.sleep(pause * random.uniform(0.5, 1.5))
        pause = min(2 * pause, _PAUSE_MAX_S)


def _run(function: Callable[[], Any], state: State, patience: float, restarts_max: int) -> Any:
    restarts, commits = 0, -2
    lost, deadline = "", math.inf
    while True:
        is_back = False
        try:
            state.sync()
            is_back = True
            result = function()
            if is_initialized():
                barrier()  # who returns may end, so nobody may need it any more
            return result
        except GradbusError as problem:
            is_same_loss = state._after_loss and not is_back
            loss = _loss_behind(problem, is_same_loss) if is_initialized() else None
            if loss is None:
                raise
            if not is_same_loss:
                restarts = restarts + 1 if state._common == commits else 1
                if restarts > restarts_max:
                    raise
                commits, lost, deadline = state._common, loss.what, time.monotonic() + patience
            state._after_loss = True
            answer = loss.what if is_same_loss else ""
            loss = None
        # Outside: the exception holds the frames of the function, and they views of shared memory.
        _rejoin(lost, deadline, patience, answer)


def _loss_behind(problem: GradbusError, is_returning: bool) -> GradbusError | None:
    """What the job can go on after; None if it cannot. ``is_returning``: from an earlier loss.

    A rank of the same process set may have left because it has heard of a loss, elsewhere, that this
    rank has not: the set is without the lost ones. All ranks' next operation says so.
    """
    if problem.id != _LEFT:
        is_early = is_returning and problem.id in _WITHOUT_SHARDS
        return problem if is_early or problem.id in _RECOVERABLE else None
    try:
        barrier()
    except GradbusError as answer:
        return answer if answer.id in _RECOVERABLE else None
    return None


def _rejoin(lost: str, deadline: float, patience: float, answer: str) -> None:
    """``answer``: what went wrong when this rank had joined again; "": this is the first time."""
    who = f'rank {current().rank} of job "{current().job}"'
    _log.warning("gradbus.elastic: %s joins again: %s", who, answer or lost)
    shutdown()
    pause = _PAUSE_MAX_S if answer else _PAUSE_MIN_S
    while True:
        is_over = False
        if not answer:
            try:
                return join_again(max(deadline - time.monotonic(), 0.001))
            except GradbusError as problem:
                shutdown()
                is_over = isinstance(problem, TimeoutError)
                if not is_over and problem.id not in _TOO_EARLY:
                    raise
                answer = problem.what
        if is_over or time.monotonic() + pause > deadline:
            raise TimeoutError(
                f"GB-M006 NOT_REJOINED: {who} could not join again within {patience:g} s after the "
                f"loss: {lost}; the last answer: {answer} | next: start the missing agent, shard or "
                f"rank sooner, or raise {TIMEOUT}"
            ) from None
        answer = ""
        time.sleep(pause * random.uniform(0.5, 1.5))  # ranks of one node do not come in step
        pause = min(2 * pause, _PAUSE_MAX_S)

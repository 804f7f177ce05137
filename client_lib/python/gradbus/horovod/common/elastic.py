"""``run`` and the states of Horovod that need no framework, on those of ``gradbus.elastic``. Main thread."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from ... import _core
from ... import elastic as _elastic
from ..._errors import GradbusError, TimeoutError, bad_argument
from ..._objects import broadcast_object
from ..._parts import Collective
from ..._session import current, rank
from .exceptions import HostsUpdatedInterrupt

__all__ = ["ObjectState", "State", "notification_manager", "run", "run_fn"]

Callback = Callable[[], object]
Function = Callable[..., Any]


class WorkerNotificationManager:
    """Would tell states of new hosts. The hosts of a job never change, so its methods do nothing."""

    def init(self, rendezvous_addr: Any = None, rendezvous_port: Any = None, nic: Any = None) -> None:
        """Does nothing."""

    def register_listener(self, listener: Any) -> None:
        """Does nothing."""

    def remove_listener(self, listener: Any) -> None:
        """Does nothing."""


notification_manager = WorkerNotificationManager()


class State(_elastic.State):
    """What Horovod's states have and those of Gradbus have not. Subclasses may override any method.

    commit() calls save() and check_host_updates(). A recovery calls restore() and on_reset(), which calls reset().
    """

    def __init__(self, **values: Any) -> None:
        self._reset_callbacks: list[Callback] = []
        self._is_saving = False
        super().__init__(**values)

    def register_reset_callbacks(self, callbacks: Iterable[Callback]) -> None:
        """Functions to call when the job has joined again and the last commit is restored."""
        self._reset_callbacks.extend(callbacks)

    def commit(self) -> None:
        """As that of gradbus.elastic.State, and check_host_updates()."""
        super().commit()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Does nothing: the hosts of a job never change."""

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Does nothing. Nobody calls it, because the hosts of a job never change."""

    def save(self) -> None:
        """For subclasses, which keep more in a commit. Raises InvalidError if a script calls it."""
        if not self._is_saving:
            raise bad_argument("State.save: one rank cannot keep its values alone", "call commit() on every rank")

    def reset(self) -> None:
        """For subclasses: the job has joined again."""

    def on_reset(self) -> None:
        """Calls reset() and the registered functions."""
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def sync(self) -> None:
        """As that of gradbus.elastic.State; after a loss, it calls restore() and on_reset()."""
        is_back = self._after_loss
        super().sync()
        if is_back:
            self.on_reset()

    def _keep(self) -> None:
        self._is_saving = True
        try:
            self.save()
        finally:
            self._is_saving = False
        super()._keep()


class ObjectState(State):
    """Named Python values that a job can restore: ``ObjectState(hvd.broadcast_object, hvd.rank, step=0)``.

    Raises InvalidError for functions other than these two.
    """

    def __init__(
        self,
        bcast_object: Callable[..., Any] = broadcast_object,
        get_rank: Callable[[], int] = rank,
        **kwargs: Any,
    ) -> None:
        if bcast_object is not broadcast_object or get_rank is not rank:
            raise bad_argument(
                "ObjectState: bcast_object and get_rank are not those of Gradbus",
                "pass hvd.broadcast_object and hvd.rank, or leave them out",
            )
        super().__init__(**kwargs)


def run(func: Function | None = None, *, timeout: float | None = None, restarts_max: int = 10) -> Any:
    """As gradbus.elastic.run(), and calls the function again after errors that it raises on all ranks.

    After HorovodInternalError the values are those of the last commit, and after HostsUpdatedInterrupt those of
    rank 0, or each rank's own with ``skip_sync=True``. Both count as losses for ``restarts_max``. Raises TimeoutError
    if not all ranks raise one within ``timeout``.
    """
    if func is None:
        return functools.partial(run, timeout=timeout, restarts_max=restarts_max)
    wanted = func  # which is no more None

    @functools.wraps(wanted)
    def with_resets(state: State, *args: Any, **kwargs: Any) -> Any:
        call = functools.partial(wanted, state, *args, **kwargs)
        return _with_resets(call, state, _elastic.patience_of(timeout), restarts_max)

    return _elastic.run(with_resets, timeout=timeout, restarts_max=restarts_max)


def run_fn(func: Function, reset: Callable[[], object]) -> Any:
    """run(). ``reset`` is not called: after a loss, the job joins again by itself."""
    return run(func)


def _with_resets(call: Callable[[], Any], state: State, patience: float, resets_max: int) -> Any:
    for resets in range(resets_max + 1):
        try:
            return call()
        except (GradbusError, HostsUpdatedInterrupt) as error:
            action = _action_after(error)
            if action is None or resets == resets_max:
                raise
            name = type(error).__name__
        _agreed(action, name, patience)(state)
    raise AssertionError("the last call returns or raises")


def _reset(state: State) -> None:
    state.on_reset()


def _reset_and_share(state: State) -> None:
    state.on_reset()
    state.sync()


def _restore_and_reset(state: State) -> None:
    state._after_loss = True
    state.sync()


# By what ranks tell each other; the largest number counts.
_ACTIONS = (_reset, _reset_and_share, _restore_and_reset)


def _action_after(error: Exception) -> int | None:
    """None: the error is not one that a script has made."""
    if isinstance(error, HostsUpdatedInterrupt):
        return 0 if error.skip_sync else 1
    return 2 if isinstance(error, GradbusError) and not error.id else None


def _agreed(action: int, name: str, patience: float) -> Callable[[State], None]:
    """What all ranks do next."""
    session = current()
    actions = bytearray(session.size)
    operation = session.start([_core.Request(Collective.ALLGATHER, "elastic/raised", bytearray([action]))])
    try:
        operation.wait(round(1000 * patience))
    except TimeoutError:
        raise TimeoutError(
            f"GB-P110 STALLED: elastic.run: rank {session.rank} has raised {name}, but within "
            f"{patience:g} s not all ranks have | next: raise it on every rank after the same step"
        ) from None
    operation.copy_output(actions)
    return _ACTIONS[max(actions)]

"""How the members of a process group become ranks of one job on the daemons. Any thread."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import os
import secrets
import socket
from collections.abc import Callable
from typing import Any

from torch.distributed import PrefixStore, TCPStore

from ... import _core, _session
from ..._errors import ClosedError, GradbusError, PeerLostError, TimeoutError
from ..._launch.agreement import agree
from ._messages import for_torch

NAME = "gradbus"  # of the backend
_STORE_CONNECT_S = 1.0
# Job names have at most 127 bytes.
_BASE_BYTES_MAX = 80
FORKED = (
    "GB-O907 FORKED: this process was forked after init_process_group(); the process group stays with the parent"
    " | next: use it in the parent only, or start the child with spawn"
)


@dataclasses.dataclass
class Members:
    """A process group's session, and who is in it."""

    session: _core.Session
    job: str
    rank: int  # in the group
    size: int
    timeout_ms: int
    store: Any  # of the group alone
    global_ranks: list[int]  # by rank in the group
    # Run before the session ends, while views of shared memory are still valid.
    before_close: list[Callable[[], None]] = dataclasses.field(default_factory=list)
    hooks: int = 0  # communication hooks of its models so far
    lost: PeerLostError | None = None
    unseen: set[Any] = dataclasses.field(default_factory=set)  # works whose errors nobody has looked at
    has_left: bool = False
    pid: int = dataclasses.field(default_factory=os.getpid)

    def close(self) -> None:
        """Leaves the job; operations in flight are abandoned."""
        for callback in self.before_close:
            callback()
        self.before_close.clear()
        self.session.close()

    def announce_leaving(self) -> None:
        """Tells the other members; no message begins from now on."""
        if self.size > 1 and not self.has_left and _answers(self.store):
            with contextlib.suppress(RuntimeError):  # the store may end before the call
                self.store.set(self._key_of_leaving(self.rank), "left")
        self.has_left = True

    def check_process(self) -> None:
        """ClosedError in a process that was forked later."""
        if self.pid != os.getpid():
            raise ClosedError(FORKED)

    def check_alive(self) -> None:
        """PeerLostError when a member has died. Asks the agent, so it takes a while."""
        if self.lost is None:
            try:
                self.session.ask_coordinator("{}")
            except PeerLostError as error:
                self.lost = error
            except GradbusError:
                pass  # the question has no answer
        if self.lost is not None:
            raise for_torch(self.lost, self.global_ranks)

    def check_present(self, rank: int) -> None:
        """PeerLostError when this member has left the group. Asks the store, which may be busy for another thread."""
        left = False
        with contextlib.suppress(RuntimeError):  # the store may end before the call
            left = _answers(self.store) and self.store.check([self._key_of_leaving(rank)])
        if left:
            raise PeerLostError(
                f"GB-P105 RANK_LEFT: {self.name_of(rank)} has left the process group | next: see why it left before "
                "this message"
            )

    def _key_of_leaving(self, rank: int) -> str:
        return f"gradbus/left/{self.job}/{rank}"

    def name_of(self, rank: int) -> str:
        """For messages: a member by its number in the group, and in the job where that is another."""
        known = self.global_ranks[rank]
        return f"rank {rank}" if known == rank else f"rank {rank} (global rank {known})"


def milliseconds(timeout: datetime.timedelta | None, otherwise: int) -> int:
    """Of an option of torch, where a time of zero or less means none."""
    given = 0 if timeout is None else round(timeout.total_seconds() * 1000)
    return given if given > 0 else otherwise


def open_members(
    store: Any, rank: int, size: int, timeout: datetime.timedelta, global_ranks: list[int]
) -> Members:
    """Waits for all members. Raises TimeoutError (names the missing ones), UnavailableError (no agent) and the like."""
    timeout_ms = milliseconds(timeout, 1_800_000)
    ranks = list(global_ranks) or list(range(size))
    job = _agree_on_job(store, rank, ranks, timeout_ms)
    session = open_session(job, rank, ranks, timeout_ms)
    return Members(session, job, rank, size, timeout_ms, store, ranks)


def open_session(
    job: str, rank: int, global_ranks: list[int], timeout_ms: int, *, many_threads: bool = False
) -> _core.Session:
    """Joins the job as this rank; returns when all have.

    ``global_ranks``: by rank of the job. ``many_threads``: each begins operations in its own order.
    """
    try:
        return _core.Session(
            job=job,
            rank=rank,
            world_size=len(global_ranks),
            start_timeout_ms=timeout_ms,
            op_timeout_ms=timeout_ms,
            many_threads=many_threads,
        )
    except GradbusError as error:
        raise for_torch(error, global_ranks) from None


def _agree_on_job(store: Any, rank: int, global_ranks: list[int], timeout_ms: int) -> str:
    if len(global_ranks) == 1:
        return _new_job_name()
    calls = "init_process_group() or new_group()"
    try:
        return agree(store, rank, len(global_ranks), timeout_ms, _new_job_name, calls)
    except TimeoutError as error:
        raise for_torch(error, global_ranks) from error.__cause__


def _answers(store: Any) -> bool:
    """Whether somebody serves the store. torch writes a stack trace to stderr when it finds a TCPStore without."""
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    if not isinstance(store, TCPStore):
        return True
    try:
        socket.create_connection((store.host, store.port), _STORE_CONNECT_S).close()
    except OSError:
        return False
    return True


def _new_job_name() -> str:
    base = _session.current().job if _session.is_initialized() else _job_of_launcher()
    cut = base.encode()[:_BASE_BYTES_MAX].decode(errors="ignore")
    return f"{cut}.dist-{secrets.token_hex(6)}"


def _job_of_launcher() -> str:
    names = ("GRADBUS_JOB", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID")
    return next((os.environ[name] for name in names if os.environ.get(name)), "torch")

"""The two faces of a process group: as the whole group, and as the part of a group for one device. Any thread."""

from __future__ import annotations

import atexit
import datetime
import os
import time
import weakref
from typing import Any

import torch
from torch._C import _distributed_c10d as c10d

from .._exchange.uncompiled import keep_out_of_compiler
from ._barriers import Barriers
from ._movements import Movements
from ._point_to_point import PointToPoint
from ._progress import process_ends, progress
from ._reductions import Reductions
from ._rendezvous import NAME, Members, milliseconds
from ._starting import Starting
from ._work import Work

_PATIENCE_S = 5.0  # with operations in flight at the end of a group, and with futures at the end of the process
_PAUSE_S = 0.001
_open: weakref.WeakSet[Group] = weakref.WeakSet()


class Group(Reductions, Movements, Barriers, PointToPoint):
    """All operations of a process group, on the session of its members."""

    def __init__(self, members: Members) -> None:
        self.members = members
        _open.add(self)

    def getBackendName(self) -> str:
        """For torch."""
        return NAME

    def _get_backend_name(self) -> str:
        return NAME

    def name(self) -> str:
        """For torch."""
        return NAME

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        """Of operations that begin from now on."""
        self.members.timeout_ms = milliseconds(timeout, self.members.timeout_ms)

    _set_default_timeout = set_timeout

    def _get_sequence_number_for_group(self) -> int:
        return self.sequence

    def _set_sequence_number_for_group(self) -> None:
        """Starts at 0 on all members anyway."""

    def shutdown(self) -> None:
        """Leaves the group, if collective operations in flight end soon after them. Else these are abandoned.

        Does nothing in a forked process.
        """
        if self.members.pid != os.getpid():
            return
        deadline = time.monotonic() + _PATIENCE_S
        for work in self.unsettled():
            while not work.end_if_over() and time.monotonic() < deadline:
                time.sleep(_PAUSE_S)
        self.abort()

    def abort(self) -> None:
        """Leaves the group; operations in flight are abandoned. Does nothing in a forked process."""
        if self.members.pid != os.getpid():
            return
        self.members.announce_leaving()
        self.close_pairs()
        self.members.close()
        _open.discard(self)


class Backend(Group, c10d.Backend):  # type: ignore[misc]
    """A part of a group of torch's."""

    supports_coalescing = False
    supports_splitting = False

    def __init__(self, members: Members) -> None:
        c10d.Backend.__init__(self, members.rank, members.size)
        Group.__init__(self, members)


class ProcessGroup(Group, c10d.ProcessGroup):  # type: ignore[misc]
    """A whole group. ``backend`` serves what torch asks of backends."""

    def __init__(self, members: Members, backend: Backend, store: Any) -> None:
        c10d.ProcessGroup.__init__(self, store, members.rank, members.size)
        Group.__init__(self, members)
        self._backend = backend
        kind = c10d.ProcessGroup.BackendType.CUSTOM
        self._set_default_backend(kind)
        for device in ("cpu", "cuda"):
            self._register_backend(torch.device(device), kind, backend)


keep_out_of_compiler(Starting, Reductions, Movements, Barriers, PointToPoint, Group, Backend, ProcessGroup, Work)


def check_process() -> None:
    """ClosedError in a process that was forked while groups were open."""
    for group in list(_open):
        group.members.check_process()


@atexit.register
def _leave_all() -> None:
    process_ends.set()
    for group in list(_open):
        group.abort()
    Group.completer.close(_PATIENCE_S)
    progress.join(_PATIENCE_S)

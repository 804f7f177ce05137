"""Barriers of torch.distributed. Any thread."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch._C import _distributed_c10d as c10d

from ..._errors import TimeoutError
from ..._ops import Sum
from ..._parts import Collective
from ._reduce_ops import Reduction
from ._rendezvous import milliseconds
from ._starting import Starting
from ._wire import Part, reduce_request
from ._work import Work

_PAUSE_MAX_S = 0.05
_LOOK_S = 1.0


class Barriers(Starting):
    """A part of a process group."""

    _monitored = 0  # barriers so far

    def barrier(self, opts: Any = None) -> Work:
        """Ends when every member has called it, and after the operations that this rank has started before."""
        opts = opts or c10d.BarrierOptions()
        one = torch.ones(1, dtype=torch.uint8, device="cpu")
        request = reduce_request(Collective.ALLREDUCE, "barrier", one, one, Reduction(Sum))
        return self.start([Part(request)], [], opts.timeout, self.unsettled())

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        """A barrier whose error names the members that did not come: the first one, or all of them.

        The members report to rank 0 through the store of the process group, so it also works while operations hang.
        """
        self.members.check_process()
        given = getattr(timeout, "timeout", timeout)  # torch passes its options here
        timeout_ms = milliseconds(given, self.members.timeout_ms)
        self._monitored += 1
        prefix = f"gradbus/monitored/{self.members.job}/{self._monitored}"
        if self.members.rank == 0:
            missing = self._missing(prefix, timeout_ms, wait_all_ranks)
            text = self._text(missing, timeout_ms) if missing else "ok"
            self.members.store.set(f"{prefix}/end", text)
            if missing:
                raise TimeoutError(text)
        else:
            self._report(prefix, timeout_ms)

    def _missing(self, prefix: str, timeout_ms: int, all_of_them: bool) -> list[int]:
        deadline = time.monotonic() + timeout_ms / 1000
        missing = []
        for rank in range(1, self.members.size):
            left = max(0.001, deadline - time.monotonic())
            if not self._has(f"{prefix}/{rank}", left):
                missing.append(rank)
                if not all_of_them:
                    break
        return missing

    def _has(self, key: str, seconds: float) -> bool:
        # torch's store writes lines of its own to stderr when its wait() ends late, so this asks.
        deadline, pause = time.monotonic() + seconds, 0.001
        look = time.monotonic() + _LOOK_S
        while not self.members.store.check([key]):
            if time.monotonic() >= deadline:
                return False
            if time.monotonic() >= look:  # a member that has died never comes
                self.members.check_alive()
                look = time.monotonic() + _LOOK_S
            time.sleep(pause)
            pause = min(2 * pause, _PAUSE_MAX_S)
        return True

    def _text(self, missing: list[int], timeout_ms: int) -> str:
        who = ", ".join(self.members.name_of(rank) for rank in missing)
        return (
            f"GB-P110 STALLED: monitored_barrier: {who} did not call it within {timeout_ms / 1000:g} s"
            " | next: see what these ranks do (gradbus status --watch)"
        )

    def _report(self, prefix: str, timeout_ms: int) -> None:
        self.members.store.set(f"{prefix}/{self.members.rank}", "here")
        # Rank 0 may have come later than this rank, and then waits for the full time.
        if not self._has(f"{prefix}/end", 2 * timeout_ms / 1000):
            raise TimeoutError(self._text([0], 2 * timeout_ms))
        end = self.members.store.get(f"{prefix}/end").decode()
        if end != "ok":
            raise TimeoutError(end)

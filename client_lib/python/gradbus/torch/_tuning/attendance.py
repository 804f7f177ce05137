"""Pauses a search while a rank is in Horovod's join(): that rank measures nothing (../../horovod/_joining.py)."""

from __future__ import annotations

import torch

from ... import _watch
from ..._differentiable import allreduce
from ..._ops import Sum
from ..._process_sets import ProcessSet, session_of


class RankHasCalledJoin(Exception):
    """A rank has no more data. All others raise this at the same place."""


class Attendance:
    """Counts the ranks that still exchange gradients of one optimizer, and so have not called join()."""

    def __init__(self, process_set: ProcessSet, number: int) -> None:
        """``number``: of the optimizer."""
        self._process_set = process_set
        self._name = f"attendance{number or ''}"
        self.is_short = False  # some ranks have called join(), and not all

    def require_all(self) -> None:
        """Before exchanges that need every rank. Raises RankHasCalledJoin on all ranks alike.

        A rank that has called join() adds zeros to sums, so a sum of ones counts the others.
        Nothing is sent where ranks cannot join.
        """
        session = session_of(self._process_set, "DistributedOptimizer")
        if not _watch.is_watched(session):
            return
        one = torch.ones(1, dtype=torch.int32, device="cpu")
        self.is_short = int(allreduce(one, self._name, Sum, process_set=self._process_set)[0]) < session.size
        if self.is_short:
            raise RankHasCalledJoin

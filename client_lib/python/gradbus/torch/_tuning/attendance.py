"""Searches wait while a rank has joined, as it measures nothing (../../horovod/_joining.py)."""

from __future__ import annotations

import torch

from ... import _watch
from ..._differentiable import allreduce
from ..._ops import Sum
from ..._process_sets import ProcessSet, session_of


class RankIsAway(Exception):
    """A rank has joined. All ranks that have not come to the same place, and raise this."""


class Attendance:
    """Of the ranks that exchange the gradients of one optimizer."""

    def __init__(self, process_set: ProcessSet, number: int) -> None:
        """``number``: of the optimizer."""
        self._process_set = process_set
        self._name = f"attendance{number or ''}"
        self.is_short = False  # a rank has joined, and not all have

    def require_all(self) -> None:
        """Before exchanges that need every rank. Raises RankIsAway on all ranks alike.

        A rank that has joined adds zeros to sums, so a sum of ones counts the others.
        Nothing is sent where ranks cannot join.
        """
        session = session_of(self._process_set, "DistributedOptimizer")
        if not _watch.is_watched(session):
            return
        one = torch.ones(1, dtype=torch.int32, device="cpu")
        self.is_short = int(allreduce(one, self._name, Sum, process_set=self._process_set)[0]) < session.size
        if self.is_short:
            raise RankIsAway

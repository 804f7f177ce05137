"""Which gradients of a bucket have arrived in this round."""

from __future__ import annotations

from collections.abc import Sequence

from .slots import Slot


class Arrivals:
    """Counts the gradients of one bucket that have arrived in this round."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self._slots = slots
        self._slots_left = 0  # whose gradients of this round are not complete
        self._has_any = True  # since begin_round()
        self.none_since_sum = False  # .grad has been a sum over all ranks: sums.py
        self._grads = 0  # in this backward pass
        self._grads_per_pass = -1  # as the slots know it; -1: no pass has ended

    @property
    def is_full(self) -> bool:
        """All gradients of this round are there."""
        return self._slots_left == 0

    def begin_round(self) -> None:
        """Forgets what has arrived."""
        self._slots_left = len(self._slots)
        self.none_since_sum = False
        if self._has_any:
            self._has_any = False
            self._grads = 0
            for slot in self._slots:
                slot.begin_round()

    def count(self, slot: Slot, passes: int) -> bool:
        """One more gradient; True when it was the last one of this round's ``passes``."""
        self._has_any = True
        self._grads += 1
        if not slot.count(passes):
            return self._slots_left == 0
        self._slots_left -= 1
        return self._slots_left == 0

    def end_pass(self, passes: int, has_started: bool) -> None:
        """No more gradients come in this backward pass. ``has_started``: nor later in this round."""
        grads, self._grads = self._grads, 0
        if has_started and grads == self._grads_per_pass:
            return  # each slot is complete, and got as many as in the pass before
        self._slots_left -= sum([slot.end_pass(passes) for slot in self._slots])
        self._grads_per_pass = sum([slot.grads_per_pass for slot in self._slots])

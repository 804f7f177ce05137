"""What the ``.grad`` of a bucket's slots are at a certain time, after which nobody should set or write to them.

Nearly always each is the memory of its slot. Then one call of the extension looks at all of them. Anything else
(None, sparse, private or somebody else's, other storage) is a matter of each slot.
"""

from __future__ import annotations

from collections.abc import Sequence

from ... import _core
from .slots import Slot


class GradientSnapshot:
    """Finds out whether somebody has set or written to a ``.grad`` of one bucket since note()."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self._slots = slots
        self._placed: _core.PlacedGradients | None = None  # when every .grad was the memory of its slot
        self._is_by_slots = True  # each has noted its own, not _placed
        self.stays_in_place = False  # every .grad is the memory of its slot, as long as it is as noted

    def are_intact(self) -> bool:
        """Every ``.grad`` is the memory of its slot. False: perhaps."""
        return self._placed is not None and self._placed.is_intact()

    def references(self) -> int:
        """How many of each ``.grad`` are here, besides those of its slot."""
        return int(self.are_intact())

    def note(self) -> None:
        """Records what each ``.grad`` is now."""
        self._is_by_slots = self._placed is None or not self._placed.note()
        if not self._is_by_slots:
            self.stays_in_place = True
            return
        self.stays_in_place = all([slot.note() for slot in self._slots])
        self._placed = _core.PlacedGradients([slot.parameter for slot in self._slots]) if self.stays_in_place else None

    def changed(self) -> Slot | None:
        """Whose gradient somebody has set or written to since; a parameter frozen meanwhile does not count."""
        if not self._is_by_slots and self._placed is not None:
            if self._placed.is_as_noted():
                return None
            for slot, found in zip(self._slots, self._placed.noted()):
                slot.noted = found
            self._is_by_slots = True
        for slot in self._slots:
            if not slot.is_as_noted():
                self.stays_in_place = False
                if slot.parameter.requires_grad:
                    return slot
        return None

    def restart(self) -> bool:
        """As slot.restart(True) of each, where nothing is to be done but to remember it. False: there is more."""
        placed = self._placed
        if placed is None or not placed.is_ready_for_more():
            return False
        for slot in self._slots:
            slot.has_zeros_for_none = True
        return True

    def forget(self) -> None:
        """The slots are elsewhere."""
        self._placed = None
        self.stays_in_place = False

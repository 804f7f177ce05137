"""A registered tensor and where torch works on its elements: what all buckets have in common."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from .. import _core
from ._staging import Place, place_of


def _make_place(parameter: torch.Tensor, timeout_ms: int, core: _core.Bucket) -> Place:
    lanes = [torch.from_dlpack(lane) for lane in core.lanes()]  # type: ignore[attr-defined]
    return place_of(parameter, lanes, core, timeout_ms)


class Registered:
    """One thread at a time. Between hand_over() and the end of finish() the elements are Gradbus's."""

    def __init__(self, core: _core.Bucket, parameter: torch.Tensor, timeout_ms: int) -> None:
        """``parameter``: one of those in it; ``timeout_ms``: of waits for its device."""
        self._make_place = functools.partial(_make_place, parameter, timeout_ms)
        self.core = core
        self.compressed = False  # agents keep what its compression remembers
        self.place = self._make_place(core)
        self.flat: torch.Tensor = self.place.views[0]  # of the current lane

    def replace(self, core: _core.Bucket) -> None:
        """Another one takes this one's place, with the elements that there are."""
        self.place.release()
        before, old = self.flat, self.place
        self.core = core
        self.place = self._make_place(core)
        self.flat = self.place.views[0]
        self.flat.copy_(before)
        old.close()

    def hand_over(self, begin: Callable[[], None] | None = None) -> None:
        """Begins a round, as core.start() unless otherwise said, when the elements are in the lane."""
        self.place.hand_over(self.core.lane, begin or self.core.start)

    def test(self) -> bool:
        """finish() would not wait."""
        return self.place.has_handed_over() and self.core.test()

    def finish(self) -> None:
        """Waits for what was handed over. After a TimeoutError it may be called again."""
        self.place.finish_handing_over()
        self.core.wait()

    def bring(self) -> int:
        """The current lane's elements are in flat now; the number of that view."""
        view = self.place.bring(self.core.lane)
        self.flat = self.place.views[view]
        return view

    def start_reading_kept(self, part: int) -> None:
        """Asks shards for a part of what they keep; finish() and bring() end it."""
        self.place.release()
        self.core.start_read_kept(part)

    def start_writing_kept(self, part: int) -> None:
        """What is in flat becomes that part; finish() ends it."""
        self.place.release()
        self.hand_over(lambda: self.core.start_write_kept(part))

    def read_memory(self, part: int) -> None:
        """This rank's share of what compression remembers is in flat."""
        self.place.release()
        self.core.start_read_memory(part)
        self.core.wait()
        self.bring()

    def write_memory(self, part: int) -> None:
        """What is in flat is remembered instead; what is in flat then means nothing."""
        if not self.compressed and self.place.carries(part):
            return
        self.place.release()
        self.hand_over(lambda: self.core.start_write_memory(part))
        self.finish()
        self.bring()  # an agent's stream may read the view until then

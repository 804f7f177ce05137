"""A registered tensor and where torch works on its elements: what all buckets have in common."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from ... import _core
from ..._watch import wait_for
from .._gpu.staging import GradientStorage, is_alone, storage_of
from .converted import Converted


def _make_storage(
    parameter: torch.Tensor, timeout_ms: int, dtype: torch.dtype | None, core: _core.Bucket
) -> GradientStorage:
    delay_slots = [torch.from_dlpack(delay_slot) for delay_slot in core.delay_slots()]  # type: ignore[attr-defined]
    storage = storage_of(parameter, delay_slots, core, timeout_ms)
    return storage if dtype is None else Converted(storage, dtype)


class Registered:
    """One thread at a time. Between hand_over() and the end of finish() the elements are Gradbus's."""

    def __init__(
        self,
        core: _core.Bucket,
        parameter: torch.Tensor,
        timeout_ms: int,
        dtype: torch.dtype | None = None,
    ) -> None:
        """``parameter``: one of those in it; ``timeout_ms``: of waits for its device.

        ``dtype``: what torch works on has this one, and is converted; None: the tensor's own.
        """
        self._make_storage = functools.partial(_make_storage, parameter, timeout_ms, dtype)
        self.core = core
        self.compressed = False  # agents keep what its compression remembers
        self.rescales = False  # that by old / new when the learning rate changes
        self.learning_rate: float | None = None  # of the last round, where it rescales; None: unknown
        self.rounds = 0  # that were begun, which a codec's warm-up counts
        self.storage = self._make_storage(core)
        self.flat: torch.Tensor = self.storage.views[0]  # of the current delay slot
        self._is_alone = is_alone(self.storage)

    def replace(self, core: _core.Bucket) -> None:
        """Another one takes this one's place, with the elements that there are."""
        self.storage.release()
        before, old = self.flat, self.storage
        self.core = core
        self.storage = self._make_storage(core)
        self.flat = self.storage.views[0]
        self._is_alone = is_alone(self.storage)
        self.flat.copy_(before)
        old.close()

    def hand_over(self, begin: Callable[[], None] | None = None) -> None:
        """Begins a round, as core.start() unless otherwise said, when the elements are in the delay slot."""
        self.rounds += begin is None
        if self._is_alone and begin is None:
            self.core.start()
        else:
            self.storage.hand_over(self.core.delay_slot, begin or self.core.start)

    def test(self) -> bool:
        """finish() would not wait."""
        return self.storage.has_handed_over() and self.core.test()

    def finish(self) -> None:
        """Waits for what was handed over. After a TimeoutError it may be called again."""
        if not self._is_alone:
            self.storage.finish_handing_over()
        wait_for(self.core)

    def copy_back(self) -> int:
        """The current delay slot's elements are in flat now; the number of that view."""
        if self._is_alone:
            return 0
        view = self.storage.copy_back(self.core.delay_slot)
        self.flat = self.storage.views[view]
        return view

    def start_reading_optimizer_state(self, part: int) -> None:
        """Asks shards for a part of the optimizer state; finish() and copy_back() end it."""
        self.storage.release()
        self.core.start_read_optimizer_state(part)

    def start_writing_optimizer_state(self, part: int) -> None:
        """What is in flat becomes that part; finish() ends it."""
        self.storage.release()
        self.hand_over(lambda: self.core.start_write_optimizer_state(part))

    def continue_warm_up(self, rounds: int) -> None:
        """The next round is the one after so many."""
        self.rounds = rounds
        self.core.continue_warm_up(rounds)

    @property
    def elements(self) -> torch.Tensor:
        """The elements of the registered tensor in its own dtype. The same as flat, unless that is converted."""
        storage = self.storage
        return storage.inner.views[storage.inner_view] if isinstance(storage, Converted) else self.flat

    def read_residual_state(self, part: int) -> None:
        """Reads this rank's share of the residual state into elements."""
        self.storage.release()
        self.core.start_read_residual_state(part)
        self.core.wait()
        self.copy_back()

    def write_residual_state(self, part: int) -> None:
        """Replaces this rank's share of the residual state by elements, whose contents are undefined then."""
        if not self.compressed and self.storage.carries(part):
            return
        self.storage.release()
        storage = self.storage.inner if isinstance(self.storage, Converted) else self.storage
        storage.hand_over(self.core.delay_slot, lambda: self.core.start_write_residual_state(part))
        self.finish()
        self.copy_back()  # an agent's stream may read the view until then

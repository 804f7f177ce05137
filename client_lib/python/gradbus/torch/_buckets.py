"""A registered tensor of gradients, and the place of each parameter in it."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .. import _core
from ._delay_compensation import DelayCompensation
from ._layout import BucketPlan
from ._parameter_info import shaped_as
from ._registered import Registered
from ._shard_parameters import ShardParameters
from ._slots import Slot, SparseSlot

NamedParameter = tuple[str, torch.nn.Parameter]


class Bucket(Registered):
    """With slots."""

    def __init__(
        self,
        core: _core.Bucket,
        plan: BucketPlan,
        named: Sequence[NamedParameter],
        timeout_ms: int,
    ) -> None:
        super().__init__(core, named[plan.slots[0].index][1], timeout_ms)
        self._sparse = plan.sparse
        self.slots = [self._slot(named[slot.index], slot.offset, slot.count) for slot in plan.slots]
        self.slots_left = 0
        self.started = False
        self.undrained = False  # results of mode delayed are left
        self._taken = True  # the result of the last start
        self._drained: bool | None = None  # what drain() found, until it has been used
        self.compressed = plan.compression != "none"
        self.on_shards: ShardParameters | None = None  # who hold the parameters
        self.compensation: DelayCompensation | None = None
        self.group = plan.group
        self.placement = 0  # of the shards it lies on, as it was registered
        self.used = True  # a round was made there
        self.spec: tuple[str, int, int, int, str, int, str] = ("", 0, 0, 0, "", 0, "")
        self._plan = plan
        self._learning_rate: float | None = None  # of the last round

    def replace(self, core: _core.Bucket) -> None:
        """The same tensor, registered anew; nothing is under way."""
        super().replace(core)
        self.used = False
        for slot, place in zip(self.slots, self._plan.slots, strict=True):
            slot.replace(self._views(place.offset, place.count, slot.parameter))

    def _views(
        self, offset: int, count: int, parameter: torch.nn.Parameter
    ) -> list[torch.Tensor]:
        return [shaped_as(parameter, lane[offset : offset + count]) for lane in self.place.views]

    def _slot(self, named: NamedParameter, offset: int, count: int) -> Slot:
        name, parameter = named
        views = self._views(offset, count, parameter)
        return (SparseSlot if self._sparse else Slot)(name, parameter, views)

    def begin_round(self, passes: int) -> None:
        """Forgets what has arrived."""
        self.slots_left = len(self.slots)
        self.started = False
        for slot in self.slots:
            slot.passes_left = passes

    def restart(self, set_to_none: bool) -> None:
        """Gradients of zeros, where the next ones are to be added."""
        if not self._sparse:
            self.flat.zero_()
        for slot in self.slots:
            slot.restart(set_to_none)

    def forget(self) -> None:
        """Others have written to it."""
        for slot in self.slots:
            slot.forget()

    def follow(self, learning_rate: float) -> None:
        """What is remembered was scaled by the last round's learning rate, steps are by this one.

        Rounds with a learning rate of 0 move nothing and do not count.
        """
        if learning_rate <= 0:
            return
        before = self._learning_rate
        self._learning_rate = learning_rate
        if before is not None and before != learning_rate:
            self.core.scale_memory(before / learning_rate)

    def start(self) -> None:
        """Hands the bucket to Gradbus."""
        for slot in self.slots:
            slot.fill()
        self.hand_over()
        self._drained = None
        self.started = True
        self.undrained = self._plan.mode.startswith("delayed")
        self._taken = False

    def start_pull(self, rests: bool = True) -> None:
        """Asks shards for the parameters; ``rests``: and says that this rank makes no steps for now."""
        self.place.release()
        self.core.start_pull() if rests else self.core.start_read_kept(0)
        self._taken = False

    def wait(self) -> None:
        """Takes the result of the round that is due, once; the views are its lane's."""
        self.finish()
        if self._taken:
            return  # before another bucket's TimeoutError
        self._taken = self.used = True
        self._use_current_lane()
        if self.on_shards is not None:
            self.on_shards.take()
        if self.compensation is not None:
            self.compensation.step(self.flat, self.core.staleness >= 0)

    def drain(self) -> None:
        """Takes the oldest result that no step has taken, or zeros when none was left; once until
        use_drained()."""
        if self._drained is not None:
            return  # before another bucket's TimeoutError
        self.place.release()
        found = self.core.drain()
        self._use_current_lane()
        if not found:
            self.flat.zero_()  # as lanes are in shared memory
        if self.compensation is not None:
            self.compensation.correct(self.flat) if found else self.compensation.forget()
        self._drained = found
        self.undrained = self.undrained and found

    def use_drained(self) -> bool:
        """A step takes what drain() has found; False: it was nothing."""
        found = bool(self._drained)
        self._drained = None
        return found

    def _use_current_lane(self) -> None:
        view = self.bring()
        for slot in self.slots:
            slot.use_lane(view)

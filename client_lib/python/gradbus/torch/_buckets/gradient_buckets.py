"""A registered tensor of gradients, and the place of each parameter in it."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ... import _core
from ..._layout import BucketPlan
from .arrivals import Arrivals
from .delay_compensation import DelayCompensation
from .gradient_snapshot import GradientSnapshot
from .parameter_info import NamedParameter, shaped_as
from .registered import Registered
from .shard_parameters import ShardParameters
from .slots import Slot, SparseSlot, references_of
from .used_flags import UsedFlags


class Bucket(Registered):
    """With slots."""

    def __init__(
        self,
        core: _core.Bucket,
        plan: BucketPlan,
        named: Sequence[NamedParameter],
        timeout_ms: int,
    ) -> None:
        dtype = getattr(torch, plan.gradient_dtype) if plan.gradient_dtype else None
        super().__init__(core, named[plan.slots[0].index][1], timeout_ms, dtype)
        self._sparse = plan.sparse
        self.slots = [self._slot(named[slot.index], slot.offset, slot.count) for slot in plan.slots]
        self._unset: Sequence[int] = ()  # slots that had no gradient here at the last start
        self._used = self._used_flags(plan)
        self.arrivals = Arrivals(self.slots)
        self._view_in_use = 0  # number of the delay slot's view that slots use
        self.started = False
        self.undrained = False  # results of mode delayed are left
        self.done = False  # the result of this step is in .grad
        self.again = False  # and after it came more gradients
        self.is_delayed = plan.mode.startswith("delayed")
        self._is_noted = False  # what there is after a pass that does not start the exchange
        self._snapshot = GradientSnapshot(self.slots)
        self._taken = True  # the result of the last start
        self._drained: bool | None = None  # what drain() found, until it has been used
        self.compressed = plan.compression != "none"
        self.on_shards: ShardParameters | None = None  # who hold the parameters
        self.compensation: DelayCompensation | None = None
        self.placement = 0  # of the shards it lies on, as it was registered
        self.used = True  # a round was made there
        self.spec: tuple[str, int, int, int, str, int, str] = ("", 0, 0, 0, "", 0, "")
        self._plan = plan

    def replace(self, core: _core.Bucket) -> None:
        """The same tensor, registered anew; nothing is under way."""
        super().replace(core)
        self._snapshot.forget()
        self.used = False
        self._view_in_use = 0
        self._used = self._used_flags(self._plan)
        for slot, place in zip(self.slots, self._plan.slots, strict=True):
            slot.replace(self._views(place.offset, place.count, slot.parameter))

    def _used_flags(self, plan: BucketPlan) -> UsedFlags | None:
        return None if plan.flags_start is None else UsedFlags(self.flat, plan.flags_start)

    def _views(
        self, offset: int, count: int, parameter: torch.nn.Parameter
    ) -> list[torch.Tensor]:
        return [shaped_as(parameter, delay_slot[offset : offset + count]) for delay_slot in self.storage.views]

    def _slot(self, named: NamedParameter, offset: int, count: int) -> Slot:
        name, parameter = named
        views = self._views(offset, count, parameter)
        return (SparseSlot if self._sparse else Slot)(name, parameter, views)

    def element_views(self) -> list[tuple[str, torch.Tensor]]:
        """By parameter: its part of elements, in its shape."""
        places = zip(self.slots, self._plan.slots, strict=True)
        return [
            (slot.name, shaped_as(slot.parameter, self.elements[place.offset : place.offset + place.count]))
            for slot, place in places
        ]

    def begin_round(self) -> None:
        """Forgets what has arrived."""
        self.arrivals.begin_round()
        self.started = self.done = self.again = False
        self._is_noted = False

    def adopt(self) -> None:
        """Every ``.grad`` is the view, zeros where no gradient came."""
        for slot in self.slots:
            slot.adopt()

    def adopt_moved(self) -> None:
        """As adopt(), after on_gradient() of every slot: most ``.grad`` are the view already."""
        if not self._snapshot.are_intact():
            with torch.no_grad():
                self.adopt()

    def point(self, keeps_none: bool = False) -> None:
        """Every ``.grad`` is the view, with what is there. ``keeps_none``: but None stays None."""
        for slot in self.slots:
            if not keeps_none or slot.parameter.grad is not None:
                slot.point()

    def point_as_noted(self) -> None:
        """As point(), when changed_in_flight() has just found nothing: most ``.grad`` are the view already."""
        if not self._snapshot.stays_in_place:
            self.point()

    def leave_unused_out(self) -> None:
        """After point(): ``.grad`` is None where no rank has a gradient."""
        if not self._unset:
            return
        unset, self._unset = self._unset, ()
        unused = () if self._used is None else self._used.unused(unset)
        for number in unset:
            slot = self.slots[number]
            if number not in unused and self._used is not None:
                slot.refuse_when_frozen_here()
            slot.leave_out() if number in unused else slot.end_zeros_for_none()

    def note(self) -> None:
        """From here on to start() nobody should write to the gradients."""
        self._is_noted = True
        self._snapshot.note()

    def references(self) -> list[int]:
        """How many of each slot's ``.grad`` are in this bucket."""
        noted = self._snapshot.references()
        return [noted + references_of(slot) for slot in self.slots]

    def changed_since_noted(self) -> Slot | None:
        """Whose gradient somebody has written to since note()."""
        return self._snapshot.changed() if self._is_noted else None

    def changed_in_flight(self) -> Slot | None:
        """Whose gradient somebody has written to since start()."""
        if self.started and not self._taken:
            return self._snapshot.changed()
        self._snapshot.stays_in_place = False  # nobody has looked, for example after a wait that ended in an error
        return None

    def restart(self, set_to_none: bool) -> None:
        """Gradients of zeros, where the next ones are to be added."""
        if not self._sparse:
            self.flat.zero_()
        if set_to_none and self._snapshot.restart():
            return
        for slot in self.slots:
            slot.restart(set_to_none)

    def let_go(self, keep_values: bool) -> None:
        """No ``.grad`` is in shared memory."""
        self._snapshot.forget()
        for slot in self.slots:
            slot.let_go(keep_values)

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
        before, self.learning_rate = self.learning_rate, learning_rate
        if before is not None and before != learning_rate:
            self.core.scale_residual_state(before / learning_rate)

    @property
    def is_given_up(self) -> bool:
        """After wait(): a rank has sent this as what it does not step on."""
        return self._used is not None and self._used.are_given_up

    def start(self, has_gradients: bool = True, gives_up: bool = False) -> None:
        """Hands the bucket to Gradbus. Without gradients: this rank has joined, and only adds zeros.

        ``gives_up``: this rank will not step on the result, and the others must not.
        """
        for slot in self.slots if self._sparse else ():
            slot.fill()
        if not self.arrivals.is_full:
            self._unset = [n for n, slot in enumerate(self.slots) if slot.is_unset() or not has_gradients]
        if self._used is not None:
            self._used.write(self._unset, gives_up)
        self.hand_over()
        self._drained = None
        self.started = True
        self.undrained = self._plan.mode.startswith("delayed")
        self._taken = False
        self._snapshot.note()

    def start_pull(self, rests: bool = True) -> None:
        """Asks shards for the parameters; ``rests``: and says that this rank makes no steps for now."""
        self.storage.release()
        self.core.start_pull() if rests else self.core.start_read_optimizer_state(0)
        self._taken = False

    def wait(self) -> None:
        """Takes the result of the round that is due, once; the views are its delay slot's."""
        self.finish()
        if self._taken:
            return  # before another bucket's TimeoutError
        self._taken = self.used = True
        self._use_current_delay_slot()
        if self.on_shards is not None:
            self.on_shards.take()
        if self.compensation is not None:
            self.compensation.step(self.flat, self.core.staleness >= 0)

    def drain(self) -> None:
        """Takes the oldest result that no step has taken, or zeros when none was left; once until
        use_drained()."""
        if self._drained is not None:
            return  # before another bucket's TimeoutError
        self.storage.release()
        found = self.core.drain()
        self._use_current_delay_slot()
        if not found:
            self.flat.zero_()  # as delay slots are in shared memory
        if self.compensation is not None:
            self.compensation.correct(self.flat) if found else self.compensation.forget()
        self._drained = found
        self.undrained = self.undrained and found

    def use_drained(self) -> bool:
        """A step takes what drain() has found; False: it was nothing."""
        found = bool(self._drained)
        self._drained = None
        return found

    def _use_current_delay_slot(self) -> None:
        view = self.copy_back()
        if view != self._view_in_use or self._sparse:  # the rows of sparse ones are others each time
            self._view_in_use = view
            self._snapshot.forget()
            for slot in self.slots:
                slot.use_delay_slot(view)

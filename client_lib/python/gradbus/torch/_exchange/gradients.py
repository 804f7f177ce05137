"""The gradients of one optimizer: born in shared memory, exchanged while backward still runs.

Each parameter has a slot of a registered bucket; its ``.grad`` is a view of the slot, so autograd accumulates straight
into shared memory (on a device: into what is copied there, ../_gpu/staging.py). When buckets are exchanged: rounds.py.

The thread that runs backward and the one that calls step may differ but never overlap.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import weakref
from collections.abc import Sequence
from typing import Any

import torch

from ..._errors import GradbusError, bad_argument
from ..._process_sets import ProcessSet, session_of
from ..._session import has_failed, lost_step
from .._buckets.detach import SHUT_DOWN, closed_error, detach_before_close
from .._buckets.gradient_buckets import Bucket
from .._buckets.retire import retire, retire_later, retire_names
from .._buckets.shard_parameters import set_parameters
from .._buckets.slots import Slot
from .._gpu.staging import try_devices, uuid_for_rank_buffers
from .._schedules import waits_of
from .._state.optimizer_state import ShardState, agree_on, read_shards, remembering, write_shards
from .._state.residual_state import CompressionState, check_state, read_state, write_state
from .._takeover import GONE
from .._tuning.step_times import StepTimes
from .bucket_maker import BucketMaker, ExchangedParameter
from .deferred import Deferred, StepPart
from .groups import ParameterGroups
from .hooks import after_accumulation, before_accumulation
from .rounds import Rounds, in_flight_error


class _Hook:
    """Of one parameter. It is called with each gradient while this object lives."""

    __slots__ = ("__weakref__", "bucket", "rounds", "slot")

    def __init__(self, rounds: Rounds, bucket: Bucket, slot: Slot) -> None:
        self.rounds = rounds
        self.bucket = bucket
        self.slot = slot

    def remove(self) -> None:
        """The parameter has no hook."""
        self.slot.hook.remove()


class GradientExchange:
    """All buckets of one optimizer; one round ends with each synchronize()."""

    def __init__(
        self,
        maker: BucketMaker,
        passes: int,
        prefix: str,
        groups: ParameterGroups,
        placement: int = 0,
        waits_in_backward: bool = True,
    ) -> None:
        self._maker = maker
        self._prefix = prefix
        self._process_set = maker.process_set
        self._schedule = maker.schedule
        self._placement = placement  # of shards: the newest that was asked for
        self._additions = itertools.count()
        self._buckets: list[Bucket] = []
        self.owned: set[int] = set()  # id() of each parameter that has a slot: a tensor's hash() takes longer
        self._async_ps: set[torch.nn.Parameter] = set()
        self._rounds = Rounds(
            self._buckets, passes, maker.op, waits_in_backward, prefix, maker.process_set,
            groups, maker.rescale_residual, maker.schedule.waits_in_forward,
        )  # fmt: skip
        self.deferred = self._rounds.deferred
        if maker.arrival or maker.plan is not None or not maker.schedule.rebuilds:
            self.forget_arrival()
        self._hooks: list[Any] = []
        self._detached = False
        self._why_detached = SHUT_DOWN
        detach_before_close(self, maker.process_set)

    @property
    def buckets(self) -> Sequence[Bucket]:
        """In the order in which backward fills them."""
        return self._buckets

    def add(self, parameters: Sequence[ExchangedParameter]) -> None:
        """Registers buckets for more parameters; every rank must add the same ones.

        Raises InvalidError (dtype, device), MismatchError naming the bucket when ranks differ,
        UnavailableError when a mode wants shards and there are none.
        """
        self.settle()
        if self.in_flight:
            raise in_flight_error("parameters cannot be added")
        number = next(self._additions)
        prefix = self._prefix if number == 0 else f"{self._prefix}+{number}"
        for bucket in self._maker.make(parameters, prefix, self._placement):
            bucket.begin_round()
            self._buckets.append(bucket)
            if bucket.on_shards is not None:
                self._async_ps.update(slot.parameter for slot in bucket.slots)
            for slot in bucket.slots:
                self._watch(bucket, slot)

    def _watch(self, bucket: Bucket, slot: Slot) -> None:
        self.owned.add(id(slot.parameter))
        # A weak reference: the hook lives as long as the parameter, the optimizer may go earlier, and a
        # slot that the parameter's hook held would hold the parameter for ever.
        hook = _Hook(self._rounds, bucket, slot)
        reference = weakref.ref(hook)

        def on_gradient(*_: Any) -> None:
            its = reference()
            if its is not None:
                its.rounds.on_gradient(its.bucket, its.slot)

        slot.hook = after_accumulation(slot.parameter, on_gradient)
        self._hooks.append(hook)
        if self._schedule.waits_in_forward:
            # A second backward pass adds to gradients whose exchange nobody has waited for.
            deferred = weakref.ref(self.deferred)
            self._hooks.append(before_accumulation(slot.parameter, lambda _: _finish(deferred)))

    @property
    def process_set(self) -> ProcessSet:
        """Whose ranks exchange."""
        return self._process_set

    @property
    def detached(self) -> bool:
        """True after shutdown(), or when a newer wrapper took over: the shared memory is gone."""
        return self._detached

    def refuse_when_detached(self) -> None:
        """Raises ClosedError."""
        if self._detached:
            raise closed_error(self._why_detached)

    @property
    def rebuilds(self) -> bool:
        """By its schedule, buckets are to follow the order in which gradients become ready."""
        return self._schedule.rebuilds

    @property
    def arrival(self) -> list[str]:
        """Parameters in the order in which backward finished them in the first pass, and no others."""
        return list(dict.fromkeys(self._rounds.arrival or []))

    def forget_arrival(self) -> None:
        """Nobody will ask for it."""
        self._rounds.arrival = None

    @property
    def waits(self) -> str:
        """Where, by the schedule: "backward", "layer" or "split"."""
        return waits_of(self._schedule)

    def time_with(self, times: StepTimes | None) -> None:
        """Tells it of each gradient; None: nobody."""
        self._rounds.times = times

    def needs_rebuild(self, arrival: Sequence[str]) -> bool:
        """Whether buckets of these parameters would be filled in another order."""
        number_of = {name: number for number, name in enumerate(arrival)}
        numbers = [number_of[s.name] for b in self._buckets for s in b.slots if s.name in number_of]
        return numbers != sorted(numbers)

    @property
    def is_synchronous(self) -> bool:
        """Each step gets the result of its own gradients."""
        return all(b.on_shards is None and not b.is_delayed for b in self._buckets)

    @property
    def is_compressed(self) -> bool:
        """Some buckets are."""
        return any(bucket.compressed for bucket in self._buckets)

    @property
    def is_deferred(self) -> bool:
        """After backward(): results are left to the next forward pass, and no step was made."""
        return self.deferred.has_begun

    def defer_step(
        self, step_part: StepPart, optimizer: Any, all_parameters: Sequence[torch.Tensor]
    ) -> None:
        """Each bucket's parameters are stepped when they are used next."""
        self._refuse_foreign_parameters(all_parameters)
        self.deferred.step(step_part, optimizer)

    def settle(self, optimizer: Any = None) -> None:
        """Ends a step that was put off; ``optimizer``: the one that made it, if it goes now."""
        if self.deferred.is_stepped:
            self.deferred.finish(optimizer)

    def settle_for_good(self, optimizer: Any = None) -> None:
        """As settle(), when nobody will use this exchange any more. Raises nothing: see lost_step()."""
        told = has_failed() or sys.exc_info()[0] is not None
        try:
            self.settle(optimizer)
        except GradbusError as error:
            if not told:
                lost_step(error)
            self.deferred.drop()

    @property
    def in_flight(self) -> bool:
        """An exchange was started and not waited for."""
        return self._rounds.in_flight

    def synchronize(
        self, all_parameters: Sequence[torch.Tensor] = (), is_step: bool = False
    ) -> None:
        """After this every ``.grad`` is the result. Nothing happens when it already is.

        A parameter without a gradient (``.grad`` is None) takes part with zeros; used_flags.py. ``is_step``: a step
        calls it, and not the user. After a TimeoutError it may be called again.
        """
        self.refuse_when_detached()
        self.deferred.finish()
        self._refuse_foreign_parameters(all_parameters)
        if not self._rounds.synchronized:
            if is_step:
                self._rounds.refuse_changes_before_exchange()
            with torch.no_grad():
                self._rounds.synchronize()
        self.deferred.aborted.clear_interrupted_wait()

    @property
    def holds_nothing(self) -> bool:
        """No parameters lie elsewhere: it can be suspended and resumed."""
        return not any(bucket.on_shards for bucket in self._buckets)

    @torch.no_grad()
    def drain(self) -> bool:
        """The next results that no step has taken are in ``.grad``, zeros where a bucket has none.

        False when there were none at all: every exchange is over. Every rank calls it until then. After a
        TimeoutError it may be called again. Where no bucket is delayed, gradients stay as they are.
        """
        self.refuse_when_detached()
        self.settle()
        if self._rounds.is_between_backward_and_step:
            raise in_flight_error("flush() is called")
        if not any(bucket.is_delayed for bucket in self._buckets):
            return False
        draining = [bucket for bucket in self._buckets if bucket.on_shards is None]
        for bucket in draining:
            bucket.drain()
        found = {bucket: bucket.use_drained() for bucket in draining}
        for bucket in self._buckets:
            bucket.point(keeps_none=not found.get(bucket, True))
        self._rounds.begin()
        return any(found.values())

    @torch.no_grad()
    def pull(self) -> int:
        """The newest parameters from shards, the same on all ranks; of how many buckets."""
        on_shards = [b for b in self._buckets if b.on_shards is not None and b.on_shards.is_set]
        if not on_shards:
            return 0
        # Once to say that this rank makes no steps for now, so that nobody waits for it; once more
        # when that is true of all, so that all get the same.
        self._pull(on_shards)
        session_of(self._process_set, "flush").barrier()
        self._pull(on_shards)
        return len(on_shards)

    def _pull(self, on_shards: Sequence[Bucket], rests: bool = True) -> None:
        for bucket in on_shards:
            bucket.start_pull(rests)
        for bucket in on_shards:
            bucket.wait()

    @torch.no_grad()
    def move(self, placement: int) -> None:
        """What lies on shards moves to those there are now. At a fence, on every rank.

        Shards that have not got the parameters yet keep their part until a later fence.
        """
        self._placement = placement
        moving = [b for b in self._buckets if b.placement < placement and _can_move(b)]
        if not moving:
            return
        session = session_of(self._process_set, "flush")
        specs = [(*b.spec[:-1], f"{b.spec[-1]},placement={placement}") for b in moving]
        devices = [uuid_for_rank_buffers(b.slots[0].parameter, b.spec[4], b.spec[-1]) for b in moving]
        try_devices(session, devices)
        for bucket, core in zip(moving, session.register_buckets(specs, devices)):
            bucket.placement = placement
            bucket.replace(core)
        on_shards = [b.on_shards for b in moving if b.on_shards is not None]
        for shard in on_shards:
            shard.is_set = False
        set_parameters(on_shards)  # which get what their predecessors have, and say when it is there

    def staleness(self) -> dict[str, int]:
        """By parameter: how many steps the gradient in ``.grad`` is old; -1: zeros, of no step."""
        return {slot.name: b.core.staleness for b in self._buckets for slot in b.slots}

    def _refuse_foreign_parameters(self, all_parameters: Sequence[torch.Tensor]) -> None:
        if self.owned.issuperset(map(id, all_parameters)):
            return
        for parameter in all_parameters:
            if id(parameter) not in self.owned and parameter.grad is not None:
                raise bad_argument(
                    f"a parameter of shape {tuple(parameter.shape)} has a gradient but did not "
                    "require one when the optimizer was made distributed",
                    "unfreeze it before, or give it to add_param_group() on every rank",
                )

    def end_round(self, is_traced: bool = True) -> None:
        """The results were used; the next synchronize() exchanges again. ``is_traced``: so is the next pass."""
        if not self.deferred.is_stepped:
            self.deferred.finish()
        self._rounds.end()
        self._rounds.span.is_traced = is_traced
        for bucket in self._buckets:
            if bucket.on_shards is not None:
                for slot in bucket.slots:
                    slot.show()

    @property
    def rounds(self) -> Rounds:
        """For a rank that has joined."""
        return self._rounds

    def zero(self, set_to_none: bool = True) -> None:
        """Zeroes every bucket and keeps ``.grad`` in it; ends an exchange that is under way first.

        ``set_to_none`` is for frozen parameters, whose ``.grad`` is as in one process. Raises BusyError after a step
        that this rank gave up.
        """
        self.refuse_when_detached()
        self.deferred.aborted.refuse()
        if self.deferred.is_stepped:
            later = self.deferred.zero(set_to_none)
            now = [bucket for bucket in self._buckets if bucket not in later]
            for bucket in now:
                bucket.begin_round()
        else:
            self._rounds.abandon()
            self._rounds.begin()
            now = self._buckets
        for bucket in now:
            bucket.restart(set_to_none)

    @torch.no_grad()
    def compression_state(self) -> CompressionState:
        """This rank's share of what compression remembers; zeroes the gradients."""
        self._refuse_between_backward_and_step("compression_state()")
        state = read_state(bucket for bucket in self._buckets if bucket.compressed)
        self._forget()
        self.zero()
        return state

    @torch.no_grad()
    def load_compression_state(self, state: CompressionState) -> None:
        """Puts it back, whatever was there before; zeroes the gradients."""
        self._refuse_between_backward_and_step("load_compression_state()")
        buckets = [b for b in self._buckets if b.elements.dtype == torch.float32]
        check_state(state, {slot.name: slot.view.shape for b in buckets for slot in b.slots})
        write_state(buckets, state)
        self._forget()
        self.zero()

    @torch.no_grad()
    def shard_state(self) -> ShardState:
        """What shards' optimizers remember, on rank 0; the same for all, so {} on others."""
        self._refuse_between_backward_and_step("shard_state()")
        session = session_of(self._process_set, "shard_state")
        return read_shards(remembering(self._buckets, only_set=True), session)

    @torch.no_grad()
    def load_shard_state(self, state: ShardState) -> None:
        """Puts it back, with the parameters that there are."""
        self._refuse_between_backward_and_step("load_shard_state()")
        session = session_of(self._process_set, "load_shard_state")
        told = agree_on(remembering(self._buckets), state, self._prefix, self._process_set, session.rank)
        # To shards that have none, the first round will bring parameters.
        written = [b for b in self._buckets if b.on_shards is not None and (b in told or b.on_shards.is_set)]
        if not written:
            return
        # As they are: the first round of a node with three ranks brings their sum times 1/3.
        parameters = {slot: slot.parameter.clone() for bucket in written for slot in bucket.slots}
        set_parameters(bucket.on_shards for bucket in written if bucket.on_shards is not None)
        write_shards(written, told, state, parameters, session.rank)
        # A step before the last part is there would be made without it.
        session.barrier()
        self._pull(written, rests=False)

    @property
    def mean_squares(self) -> dict[str, torch.Tensor]:
        """What adaptive delay compensation keeps, by parameter: views."""
        adaptive = [(b, b.compensation) for b in self._buckets if b.compensation is not None]
        return {
            slot.name: mean
            for bucket, compensation in adaptive
            for slot, mean in zip(bucket.slots, compensation.mean_squares())
        }

    @torch.no_grad()
    def take_over(self, mean_squares: dict[str, torch.Tensor]) -> None:
        """What others kept of parameters that are exchanged here now; the rest begins anew."""
        for name, mean in self.mean_squares.items():
            mean.copy_(mean_squares[name]) if name in mean_squares else mean.zero_()

    def _forget(self) -> None:
        for bucket in self._buckets:
            bucket.forget()

    def _refuse_between_backward_and_step(self, what: str) -> None:
        self.refuse_when_detached()
        self.settle()
        if self._rounds.is_between_backward_and_step:
            raise in_flight_error(f"{what} is called")

    def steps_on(self, parameter: torch.Tensor) -> bool:
        """This rank's optimizer does, with gradients that are exchanged here."""
        return id(parameter) in self.owned and parameter not in self._async_ps

    def owns(self, parameter: torch.Tensor) -> bool:
        """True when the parameter has a slot here."""
        return id(parameter) in self.owned

    def detach(self, process_goes_on: bool) -> None:
        """Lets go of shared memory, which is about to be unmapped."""
        self.settle_for_good()
        self.deferred.drop()
        self._detached = True
        self._let_go(process_goes_on)
        for bucket in self._buckets:
            bucket.storage.close()

    def release(self, why: str, collected: bool = False) -> None:
        """Others exchange these parameters for ever: buckets and their memory go, and ``why`` is said to callers."""
        if self.deferred.waits_for_optimizer:
            return  # which calls this again
        if not self._detached:
            self.settle_for_good()
            self._why_detached = why
            self.detach(not self.in_flight)
            on_shards = [bucket.core for bucket in self._buckets if bucket.on_shards is not None]
            (retire_later if collected else retire)(on_shards)
            retire(bucket.core for bucket in self._buckets if bucket.on_shards is None)
            retire_names([self._rounds.agreement], self._process_set)
            self._buckets.clear()
            self.owned.clear()

    def __del__(self) -> None:
        # Its hooks and gradients are the parameters', which live on.
        with contextlib.suppress(Exception):
            self.release(GONE, collected=True)

    @property
    def has_undrained(self) -> bool:
        """Results of mode delayed have not been used."""
        return any(bucket.undrained for bucket in self._buckets)

    def suspend(self) -> None:
        """Others exchange these parameters from now on; what this one has registered stays."""
        self._refuse_between_backward_and_step("a mode is changed")
        self._let_go(True)

    def resume(self) -> None:
        """After suspend(): this one exchanges them again, as at its start."""
        self._rounds.begin()
        for bucket in self._buckets:
            bucket.forget()
            for slot in bucket.slots:
                slot.adopted = False
                self._watch(bucket, slot)

    def _let_go(self, keep_gradients: bool) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        for bucket in self._buckets:
            bucket.let_go(keep_gradients)


def _finish(reference: weakref.ref[Deferred]) -> None:
    deferred = reference()
    if deferred is not None and deferred.is_open:
        deferred.finish()


def _can_move(bucket: Bucket) -> bool:
    if not bucket.spec[-1].startswith("ps:"):
        return False
    if bucket.on_shards is None:  # shards may have something to remember of what is compressed
        return bucket.used or not bucket.compressed
    return bucket.on_shards.is_set

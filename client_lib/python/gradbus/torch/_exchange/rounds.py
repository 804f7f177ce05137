"""When the buckets of one optimizer are exchanged, and when their results are waited for.

One exchange of all buckets is a round; a step needs one. A gradient hook counts the slots of a bucket
and the last one starts it (wait-free backpropagation). At the end of the last backward pass before a
step, wait="backward" starts what is left, zeros where no gradient came, and waits: then every ``.grad``
is the result. wait="step" leaves both to synchronize().

Invariants. A rank that waits in backward() has started every bucket, so ranks that use different parts
of the model never wait for each other in a circle. Every rank starts a bucket as often as the others:
once per step, and once more when gradients came after the exchange, which ranks agree on first (the
agreement is a tensor of its own, so a rank that makes fewer passes is an error and not a wrong mean).

Between start and the end of the wait a bucket belongs to Gradbus. Torch counts the writes to a tensor
(``_version``), so a gradient that somebody else has changed meanwhile is found and refused.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence

import torch

from ..._differentiable import allreduce
from ..._errors import BusyError, MismatchError, TimeoutError, bad_argument
from ..._ops import BitOr, Sum
from ..._process_sets import ProcessSet, session_of
from ..._session import has_failed
from .._buckets.gradient_buckets import Bucket
from .._buckets.shard_parameters import set_parameters
from .._buckets.slots import Slot
from .._buckets.sums import holds_unchanged_sum, note_sum, share_sum
from .._ddp import refuse_ddp
from .._timeline import PassSpan, profiled
from .._tuning.step_times import StepTimes
from .backward import BackwardEnd, next_order
from .deferred import Deferred, why_not_deferred
from .groups import ParameterGroups
from .hooks import has_later_ones
from .uncompiled import keep_module_out_of_compiler

_FLAG_WORDS = 8  # of the agreement; buckets beyond 8 * 63 share flags with others
_FLAGS = _FLAG_WORDS * 63


class Rounds:
    """Of the buckets in a list that may grow between rounds."""

    def __init__(
        self,
        buckets: Sequence[Bucket],
        passes: int,
        op: int,
        waits_in_backward: bool,
        prefix: str,
        process_set: ProcessSet,
        groups: ParameterGroups,
        rescale_residual: bool,
        waits_in_forward: bool,
    ) -> None:
        """``groups`` of the parameters; ``rescale_residual`` when a learning rate changes.

        ``waits_in_forward``: the next forward pass waits for the results, where that is possible.
        """
        self.order = next_order()
        self.synchronized = False  # every .grad is the result, and of all gradients
        self._buckets = buckets
        self._passes = passes
        self._op = op
        self._waits_in_backward = waits_in_backward
        self.agreement = f"{prefix}/again"
        self._process_set = process_set
        self._groups = groups
        self._rescale_residual = rescale_residual
        self._end = BackwardEnd(self)
        self._pass_is_open = False
        self.span = PassSpan()
        self._passes_made = 0  # backward passes since the last exchange
        self.exchanges = 0  # ever
        self._waits_in_forward = waits_in_forward
        self.deferred = Deferred(self._take, process_set)
        self.times: StepTimes | None = None  # while steps are measured
        self.arrival: list[str] | None = []  # parameters, as their first gradients came; None: they are known

    # ---- during backward

    def on_gradient(self, bucket: Bucket, slot: Slot) -> None:
        """Backward has accumulated into a parameter's ``.grad``."""
        # Every line costs microseconds a step: what is rare has a place of its own.
        if self._end.pending() is None:
            self._end.expect()
        if bucket.started or bucket.done:
            self._refuse_again(bucket, slot)
            bucket.again = True
        elif bucket.arrivals.none_since_sum:
            if any(map(holds_unchanged_sum, self._buckets)):
                _refuse_on_sum(slot)  # else .grad.data was zeroed, which torch does not count
            bucket.arrivals.none_since_sum = False
        if not slot.is_own():
            _adopt(bucket, slot)
        bucket.storage.produced()
        if self.arrival is not None:
            self.arrival.append(slot.name)
        if self.times is not None:
            self.times.gradient(slot.name)
        if not self._pass_is_open:
            self.deferred.aborted.refuse()
            self._pass_is_open = True
            self.span.begin()
            self.synchronized = False
        is_last = bucket.arrivals.count(slot, self._passes)
        if is_last and _may_start(bucket) and not has_later_ones(slot.parameter, slot.hook):
            bucket.adopt_moved()
            self._start(bucket)

    def _refuse_again(self, bucket: Bucket, slot: Slot) -> None:
        if bucket.started:
            raise in_flight_error(
                f"parameter '{slot.name}' got more than backward_passes_per_step={self._passes} gradients"
            )
        # The mean of a mean is itself, so gradients that are added to one are exchanged with it, as in
        # DDP. With a sum, and with a mean of other steps, that would be something else.
        if bucket.is_delayed:
            raise in_flight_error(
                f"parameter '{slot.name}' got a gradient after the exchange of this step, and its mode "
                "exchanges once a step",
            )
        if self._op == Sum and not bucket.again:
            _refuse_on_sum(slot)

    def _end_pass(self) -> None:
        if not self._pass_is_open:
            return
        self._pass_is_open = False
        self.span.end()
        self._passes_made += 1
        for bucket in self._buckets:
            bucket.arrivals.end_pass(self._passes, bucket.started)

    @property
    def _is_due(self) -> bool:
        return self._waits_in_backward and self._passes_made >= self._passes

    def exchange_begin(self) -> None:
        """At the end of backward(): starts what is complete, or, when this one waits, everything."""
        self._end_pass()
        for bucket in self._buckets:
            if _may_start(bucket) and (bucket.arrivals.is_full or (self._is_due and not bucket.on_shards)):
                with torch.no_grad():
                    _adopt_all(bucket, self._process_set)
                    self._start(bucket)

    def exchange_end(self) -> None:
        """At the end of backward(): waits, if it is the last one before a step."""
        if torch.is_grad_enabled():  # after backward(create_graph=True); no_grad() costs a microsecond
            with torch.no_grad():
                self._exchange_end()
        else:
            self._exchange_end()

    def _exchange_end(self) -> None:
        buckets = [bucket for bucket in self._buckets if bucket.on_shards is None]
        if self._is_due:
            if any([bucket.again for bucket in buckets]):
                self._agree()
            elif self._waits_in_forward and self._may_defer():
                self._passes_made = 0
                self.exchanges += 1
                self.synchronized = True  # who looks at a .grad waits for it
                self.deferred.begin(self._buckets)
                return
            self._finish(buckets)
            self.synchronized = all([bucket.done for bucket in self._buckets])
        elif self._waits_in_backward:
            for bucket in buckets:
                if not (bucket.started or bucket.done):
                    bucket.note()

    def _may_defer(self) -> bool:
        started = all(bucket.started and not bucket.done for bucket in self._buckets)
        return started and not why_not_deferred(self._buckets)

    def _start(self, bucket: Bucket, has_gradients: bool = True, gives_up: bool = False) -> None:
        if bucket.on_shards is not None:
            bucket.on_shards.refuse_frozen()
            self._groups.look_up(self._buckets)
            bucket.core.set_learning_rate(self._groups.learning_rate(bucket.slots))
        if self._rescale_residual and bucket.compressed:
            self._groups.look_up(self._buckets)
            bucket.follow(self._groups.learning_rate(bucket.slots))
        bucket.start(has_gradients, gives_up)

    # ---- waiting

    @property
    def in_flight(self) -> bool:
        """A bucket belongs to Gradbus."""
        return any([bucket.started for bucket in self._buckets])

    @property
    def is_between_backward_and_step(self) -> bool:
        """Gradients or results are there that no step has used."""
        return any([bucket.started or bucket.done for bucket in self._buckets])

    def synchronize(self) -> None:
        """Exchanges what has not been exchanged; after it every ``.grad`` is the result."""
        self.deferred.aborted.refuse()
        if self.synchronized:
            return
        self._end_pass()
        if any(bucket.again for bucket in self._buckets):
            self._agree()
        self._finish(self._buckets)
        for bucket in self._buckets:
            if bucket.on_shards is not None:
                bucket.on_shards.hide()
        self.synchronized = True

    @profiled("gradbus::wait")
    def _finish(self, buckets: Iterable[Bucket], is_used: bool = True, gives_up: bool = False) -> None:
        """Results of those that have none yet. After a TimeoutError it may be called again.

        ``gives_up``: what is started here comes from a backward() that did not end, and nobody must step on it.
        """
        missing = [bucket for bucket in buckets if not bucket.done]
        try:
            waiting = [bucket for bucket in missing if not bucket.started]
            for bucket in waiting:
                _adopt_all(bucket, self._process_set)
            set_parameters([bucket.on_shards for bucket in waiting if bucket.on_shards is not None])
            for bucket in waiting:
                self._start(bucket, gives_up=gives_up)
            if is_used:
                for bucket in missing:
                    _refuse_changed(bucket)
            for bucket in missing:
                bucket.wait()
            for bucket in missing:
                self._complete(bucket, is_as_noted=is_used)
        except (KeyboardInterrupt, TimeoutError) as error:
            if is_used and self.in_flight:
                self.deferred.aborted.record_interrupted_wait(error)
            raise
        self.deferred.aborted.clear_interrupted_wait()
        self._passes_made = 0
        if any([bucket.on_shards is None for bucket in missing]):
            self.exchanges += 1
        if is_used and any([bucket.is_given_up for bucket in missing]):
            raise self.deferred.aborted.error_of_remote_abort()

    def _complete(self, bucket: Bucket, is_as_noted: bool) -> None:
        bucket.point_as_noted() if is_as_noted else bucket.point()
        bucket.leave_unused_out()
        bucket.begin_round()
        if self._op == Sum and not bucket.is_delayed and bucket.on_shards is None:
            note_sum(bucket)
        bucket.done = True

    @profiled("gradbus::wait")
    def _take(self, bucket: Bucket) -> None:
        """The result of one bucket that was started. After a TimeoutError it may be called again."""
        _refuse_changed(bucket, is_put_off=True)
        try:
            bucket.wait()
        except (KeyboardInterrupt, TimeoutError) as error:
            if self.deferred.step_part is None:  # else it is stepped on when it is used next
                self.deferred.aborted.record_interrupted_wait(error)
            raise
        self._complete(bucket, is_as_noted=True)
        if bucket.is_given_up:
            raise self.deferred.aborted.error_of_remote_abort()

    def _agree(self) -> None:
        """Which buckets are exchanged once more: those that have new gradients on any rank."""
        session = session_of(self._process_set, "backward")
        numbered = list(enumerate(self._buckets))
        flags = {number % _FLAGS for number, bucket in numbered if bucket.again}
        if session.size > 1:
            words = [0] * _FLAG_WORDS
            for flag in flags:
                words[flag // 63] |= 1 << flag % 63
            ours = torch.tensor([self.exchanges, ~self.exchanges, *words], device="cpu")
            found = allreduce(ours, self.agreement, BitOr, process_set=self._process_set)
            most, least, *words = found.tolist()
            if most != self.exchanges or ~least != self.exchanges:
                raise _passes_differ_error(self.exchanges)
            flags = {flag for flag in range(_FLAGS) if words[flag // 63] >> flag % 63 & 1}
        for number, bucket in numbered:
            if number % _FLAGS in flags:
                bucket.done = bucket.again = False

    # ---- between rounds

    def refuse_changes_before_exchange(self) -> None:
        """step() is called: what it would exchange is what backward() has left."""
        for bucket in self._buckets:
            changed = None if bucket.started or bucket.done else bucket.changed_since_noted()
            if changed is not None:
                raise BusyError(
                    f"GB-O905 IN_FLIGHT: the gradient of '{changed.name}' was changed before its exchange: "
                    f"only {self._passes_made} of backward_passes_per_step={self._passes} passes were made "
                    "| next: call synchronize() before you clip or scale gradients"
                )

    def begin(self) -> None:
        """A new round: nothing has arrived."""
        self._groups.forget()
        for bucket in self._buckets:
            bucket.begin_round()
        self._passes_made = 0
        self._pass_is_open = False
        self.synchronized = False

    def end(self) -> None:
        """A step has used the results."""
        self._groups.forget()
        self.deferred.aborted.clear_interrupted_wait()
        self.synchronized = False
        for bucket in self._buckets:
            if bucket.arrivals.none_since_sum and bucket.done:
                note_sum(bucket)
            bucket.done = bucket.again = False

    # ---- a rank that has joined (../../horovod/_joining.py)

    @property
    def number_in_flight(self) -> int | None:
        """Of the exchange that this rank waits for, from 1."""
        if not self.in_flight:
            return None
        put_off = self.deferred.has_begun or self.deferred.is_open  # and counted already
        return self.exchanges if put_off else self.exchanges + 1

    def begin_with_zeros(self, number: int) -> bool:
        """Starts the exchange of this number. False: this rank has done so already."""
        if self.in_flight or self.exchanges >= number:
            return False
        self.begin()
        for bucket in self._buckets:
            bucket.restart(set_to_none=False)
            bucket.adopt()
            self._start(bucket, has_gradients=False)
        return True

    def test(self) -> bool:
        """No result must be waited for."""
        return all(bucket.test() for bucket in self._buckets if bucket.started)

    def end_with_zeros(self) -> None:
        """Nobody here uses the result."""
        self._finish(self._buckets, is_used=False)
        self.end()
        self.begin()

    def abandon(self) -> None:
        """Ends an exchange that is under way, as the other ranks do; nobody uses its result."""
        self.deferred.aborted.refuse_to_drop()
        if not has_failed() and any([b.on_shards is not None and (b.started or b.done) for b in self._buckets]):
            raise BusyError(
                "GB-O905 IN_FLIGHT: zero_grad() cannot drop gradients of backward(): shards have them and step on them "
                "| next: call step(); to leave a batch out, decide before backward(), or use a mode in which ranks step"
            )
        _end_exchange(self, gives_up=True)


def _adopt(bucket: Bucket, slot: Slot) -> None:
    if bucket.on_shards is None and slot.makes_dense():
        _warn_of_dense_rows(slot.name)
    with torch.no_grad():
        slot.adopt()


def _adopt_all(bucket: Bucket, process_set: ProcessSet) -> None:
    if bucket.arrivals.none_since_sum:
        share_sum(bucket, session_of(process_set, "step").size)
    bucket.adopt()


def _refuse_on_sum(slot: Slot) -> None:
    if slot.is_as_noted(writes=1):
        raise in_flight_error(f"parameter '{slot.name}' got a gradient on top of the sum over all ranks")


def _may_start(bucket: Bucket) -> bool:
    # Shards get the parameters first, when all buckets can be begun: synchronize().
    unset = bucket.on_shards is not None and not bucket.on_shards.is_set
    return not (bucket.started or bucket.done or unset)


def _refuse_changed(bucket: Bucket, is_put_off: bool = False) -> None:
    changed = bucket.changed_in_flight()
    if changed is None:
        return
    refuse_ddp((slot.name, slot.parameter) for slot in bucket.slots)  # it was made after the optimizer
    if bucket.on_shards is not None:
        next_step = "leave .grad alone: shards step on it, and it is sent as soon as it is complete"
    elif is_put_off:
        next_step = 'read parameter.grad again after backward(), or name a schedule that waits there: schedule="ddp"'
    else:
        next_step = 'call synchronize() first, or leave wait="backward", the default'
    raise BusyError(
        f"GB-O905 IN_FLIGHT: the gradient of '{changed.name}' was changed during its exchange, whose "
        f"result may be wrong on all ranks | next: {next_step}"
    )


def refuse_changed_in_flight(rounds: Rounds) -> None:
    """Raises BusyError if somebody has changed a gradient whose result has not been waited for."""
    for bucket in rounds._buckets:
        if bucket.started and not bucket.done:
            _refuse_changed(bucket)


def _end_exchange(rounds: Rounds, gives_up: bool) -> None:
    rounds.deferred.finish()
    if rounds.in_flight:
        with torch.no_grad():
            rounds._finish(rounds._buckets, is_used=False, gives_up=gives_up)


def end_unused(rounds: Rounds) -> None:
    """Before this rank joins: ends an exchange that no step has used. Others may step on its result."""
    if rounds.is_between_backward_and_step:
        rounds.deferred.aborted.refuse_to_drop()
        _end_exchange(rounds, gives_up=rounds._pass_is_open)
        rounds.begin()


def change_passes(rounds: Rounds, passes: int) -> None:
    """From now on a round has so many backward passes. BusyError while one is under way."""
    if rounds._passes_made or rounds.is_between_backward_and_step:
        raise BusyError(
            "GB-O905 IN_FLIGHT: the number of backward passes cannot change between backward() and step() "
            "| next: call step() first"
        )
    rounds._passes = passes


def refuse_scaler(rounds: Rounds, skips: bool) -> None:
    """A gradient scaler steps, and unscales or has unscaled: torch does not count those writes.

    ``skips``: the step takes gradients as they are. Raises InvalidError where shards step, BusyError if gradients
    are not the result yet.
    """
    if any([bucket.on_shards is not None for bucket in rounds._buckets]):
        raise bad_argument(
            "a gradient scaler steps, and shards step on gradients as they are sent: multiplied by its scale",
            "use bfloat16, which needs no scaler, or a mode in which ranks step",
        )
    if (rounds._passes_made and not skips) or (rounds.in_flight and not rounds.deferred.has_begun):
        raise BusyError(
            "GB-O905 IN_FLIGHT: a gradient scaler steps before the exchange of gradients has ended, and unscales "
            "them meanwhile | next: call synchronize() before unscale_() and step() of the scaler"
        )


def _passes_differ_error(ours: int) -> MismatchError:
    return MismatchError(
        "GB-O902 TENSOR_MISMATCH: ranks make different numbers of backward passes: this one exchanges "
        f"gradients once more after {ours} exchanges, others do so after another number | next: make as "
        "many backward passes between two steps on every rank"
    )


def _warn_of_dense_rows(name: str) -> None:
    warnings.warn(
        f"parameter '{name}' has sparse gradients, and they are exchanged dense: pass it in "
        "DistributedOptimizer(sparse_parameters=...) to exchange the rows alone",
        stacklevel=4,
    )


def in_flight_error(what: str) -> BusyError:
    """Gradients are where they must not be touched."""
    return BusyError(
        f"GB-O905 IN_FLIGHT: {what} while gradients are being exchanged | next: call step(), "
        "synchronize() or zero_grad() first, or raise backward_passes_per_step"
    )


keep_module_out_of_compiler(__name__)

"""Results that are waited for when the next forward pass needs them, layer by layer.

At the end of backward() all buckets have been started and nobody waits. ``.grad`` is the result whenever somebody
looks at it (first_use.py). step() is put off, too: each bucket's parameters are stepped when one of them is used
next, with the learning rate and the other options that step() found. So communication overlaps with the next
forward pass as well, and every reader sees the same numbers as without this.

An exception may come at any time, such as that of Ctrl-C. The next use goes on where it came, and no bucket is stepped
twice. A bucket that was stepped in part is shown as it is, and the optimizer refuses to go on (aborted_steps.py).

What ends it: the first use of a parameter ends its bucket. The first gradient of the next pass, flush(),
synchronize(), the optimizer's state, a fork and shutdown() end all.
"""

from __future__ import annotations

import enum
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..._process_sets import ProcessSet
from .._buckets.gradient_buckets import Bucket
from .._buckets.sums import note_sum
from .._timeline import trace_now, trace_span
from .aborted_steps import AbortedSteps
from .first_use import ModuleHook, can_watch, reveal, untracked, unwatch, watch
from .holders import is_gradient_held
from .plain_thread import call_plainly
from .uncompiled import keep_module_out_of_compiler

StepPart = Callable[[Any, Sequence[torch.nn.Parameter]], None]  # of an optimizer


class _Stage(enum.IntEnum):
    """What was done with a bucket last."""

    STARTED = 0
    TAKEN = 1
    STEP_BEGUN = 2
    STEPPED = 3


class Deferred:
    """Of one exchange. Any thread may use a parameter; one at a time ends a bucket."""

    def __init__(self, take: Callable[[Bucket], None], process_set: ProcessSet) -> None:
        """``take``: waits for a bucket that was started, and makes its result ``.grad``."""
        self._take = take
        self.aborted = AbortedSteps(process_set)
        self._lock = threading.RLock()
        self._buckets: Sequence[Bucket] = ()
        self._left: list[Bucket] = []  # in the order of the backward pass
        self._stages: dict[Bucket, _Stage] = {}
        self._bucket_of: dict[torch.nn.Parameter, Bucket] = {}
        self.step_part: StepPart | None = None  # steps parameters whose step() was put off
        self._optimizer: Callable[[], Any] = _nobody
        self._zero: bool | None = None  # set_to_none of the zero_grad() that was put off
        self._module_hook = ModuleHook()
        self._stepping = 0  # the thread that steps a bucket: its optimizer looks at its own state

    @property
    def is_open(self) -> bool:
        """Some buckets have not been waited for."""
        return bool(self._left)

    @property
    def is_stepped(self) -> bool:
        """step() was called, and some parameters have not been stepped."""
        return self.step_part is not None and self.is_open

    @property
    def waits_for_optimizer(self) -> bool:
        """The optimizer is about to be collected. Its end comes with finish(), and until then weak references to it
        find nothing."""
        return self.is_stepped and self._optimizer() is None

    @property
    def has_begun(self) -> bool:
        """Results were put off since the last step, though somebody may have waited for all since."""
        return self.step_part is None and bool(self._buckets)

    def begin(self, buckets: Sequence[Bucket]) -> None:
        """All of these were started."""
        self.finish()
        self.step_part = self._zero = None
        self._stages = dict.fromkeys(buckets, _Stage.STARTED)
        self._buckets, self._left = buckets, list(buckets)
        self._bucket_of = {slot.parameter: bucket for bucket in buckets for slot in bucket.slots}
        self._watch(values=False)
        for bucket in buckets:
            if _is_held(bucket):  # else its holder would see the gradient of this rank alone
                self._end(bucket)

    def step(self, step_part: StepPart, optimizer: Any) -> None:
        """What has arrived is stepped now, the rest later. An optimizer that goes calls finish() before."""
        with self._lock:
            self._optimizer = weakref.ref(optimizer)
            for bucket in [bucket for bucket in self._left if bucket.test()]:
                self._end(bucket)
            self.step_part = step_part
            for bucket in self._buckets:
                if bucket.done:
                    self._step_on(bucket)
            if self._left:
                self._watch(values=True)
                self._module_hook.put()

    def zero(self, set_to_none: bool) -> list[Bucket]:
        """After step(): buckets that are left get zeros once they have been stepped. Which those are."""
        with self._lock:
            self._zero = set_to_none or bool(self._zero)  # None stays None
            return list(self._left)

    def finish(self, optimizer: Any = None) -> None:
        """Ends all. After a TimeoutError it may be called again. ``optimizer``: the one that goes."""
        if not self._buckets or self._stepping == threading.get_ident():
            return
        with self._lock:
            if optimizer is not None:
                self._optimizer = lambda: optimizer
            for bucket in list(self._left):
                self._end(bucket)
            self._forget()

    def drop(self) -> None:
        """Nobody will wait for what is left: its exchange has failed, or is over."""
        with self._lock:
            for parameter, bucket in self._bucket_of.items():
                if bucket in self._left:
                    unwatch(parameter)
            self._left.clear()
            self._forget()

    def _forget(self) -> None:
        self._module_hook.remove()
        self._bucket_of = {}
        self._buckets = ()
        self._stages = {}
        self.step_part = None
        self._optimizer = _nobody

    def _watch(self, values: bool) -> None:
        watch((slot.parameter for bucket in self._left for slot in bucket.slots), self._on_use, values)

    def _on_use(self, parameter: torch.nn.Parameter) -> None:
        with self._lock:
            bucket = self._bucket_of.get(parameter)
            if bucket is not None and bucket in self._left:  # no other thread was faster
                self._end(bucket)

    def _end(self, bucket: Bucket) -> None:
        call_plainly(lambda: self._end_here(bucket))

    def _end_here(self, bucket: Bucket) -> None:
        # Parameters are watched to the end: another thread that uses one waits for the lock.
        if self._stages[bucket] < _Stage.TAKEN:
            with untracked(), torch.no_grad():
                self._take(bucket)
            self._stages[bucket] = _Stage.TAKEN
        if self.step_part is not None:
            self._step_on(bucket)
        if self._zero is not None:
            with untracked(), torch.no_grad():
                bucket.begin_round()
                bucket.restart(self._zero)
        for slot in bucket.slots:
            unwatch(slot.parameter)
        self._left.remove(bucket)

    def _step_on(self, bucket: Bucket) -> None:
        """Once. What follows the optimizer's part may be done again."""
        traced = trace_now()
        self._stepping = threading.get_ident()
        try:
            with untracked():
                for slot in bucket.slots:
                    reveal(slot.parameter)
                if self._stages[bucket] < _Stage.STEP_BEGUN:
                    self._step_once(bucket)
                if bucket.arrivals.none_since_sum:
                    note_sum(bucket)
        finally:
            self._stepping = 0
        trace_span("deferred step", traced)
        bucket.done = bucket.again = False

    def _step_once(self, bucket: Bucket) -> None:
        assert self.step_part is not None
        try:
            self._stages[bucket] = _Stage.STEP_BEGUN
            self.step_part(self._optimizer(), [slot.parameter for slot in bucket.slots])
            self._stages[bucket] = _Stage.STEPPED
        except BaseException as error:
            self.aborted.record_partial_step(error)
            raise


def _nobody() -> None:
    return None


def _is_held(bucket: Bucket) -> bool:
    with untracked():
        return any(is_gradient_held(slot.parameter, own) for slot, own in zip(bucket.slots, bucket.references()))


def why_not_deferred(buckets: Sequence[Bucket]) -> str:
    """Empty when each result is that of its own step, and every use of a parameter can be seen."""
    for bucket in buckets:
        if bucket.on_shards is not None:
            return f"shards step on '{bucket.slots[0].name}'"
        if bucket.is_delayed:
            return f"results of '{bucket.slots[0].name}' are delayed, so those of an earlier step are there"
        for slot in bucket.slots:
            if not can_watch(slot.parameter):
                return f"'{slot.name}' is of class {type(slot.parameter).__name__}, whose uses cannot be seen"
    return ""


keep_module_out_of_compiler(__name__)

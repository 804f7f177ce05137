"""DiLoCo and local SGD: ranks step on their own, and now and then an outer optimizer steps for all.

Of every parameter there is a global copy, the same bits on every rank. After H inner steps the ranks
exchange their pseudo-gradients: the global copy minus the local parameters. An outer SGD with Nesterov
momentum steps on the mean, and all ranks continue from the global copy (Douillard et al. 2023,
Algorithm 1). Local SGD (Stich 2019) is the same with a learning rate of 1 and no momentum: then the
global copy becomes the mean of the parameters.

Fragments take turns, so that less travels at once. An exchange may run in the background while ranks
make steps, and their progress is kept (Streaming DiLoCo, Douillard et al. 2025).

Invariants: all ranks make the same number of steps, and where they exchange something they compare it. So a rank
that calls flush() early meets what the others do next, whatever that is. Global copies and momenta differ on no
two ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from .. import _core
    from .agreement import EqualSteps


class OuterBucket(Protocol):
    """A bucket of pseudo-gradients, the global copy of its parameters and the outer momentum."""

    @property
    def names(self) -> Sequence[str]:
        """Of its parameters."""

    def anchor(self) -> None:
        """The parameters are the global copy."""

    def start(self) -> None:
        """Sends the pseudo-gradient off."""

    def wait(self) -> None:
        """The mean is in the bucket. After a TimeoutError it may be called again."""

    def apply(self) -> None:
        """The outer step on the mean. Parameters continue from the global copy."""


Bucket = TypeVar("Bucket", bound=OuterBucket)


class Fragment(Generic[Bucket]):
    """Parameters that are exchanged at the same steps."""

    def __init__(self, buckets: Sequence[Bucket], counts: EqualSteps, turn: int) -> None:
        self.buckets = buckets
        self.counts = counts
        self.turn = turn  # step modulo H
        self.steps = 0  # since the last start
        self.in_flight = False
        self._sent: Sequence[Bucket] = ()  # what is in flight besides the number of steps
        self.due = 0  # the step after which what is in flight is applied

    def start(self, step: int, due: int) -> None:
        """Begins an exchange, after this step. Without steps since the last one there is only their number."""
        self.counts.start(step)
        self._sent = self.buckets if self.steps else ()
        for bucket in self._sent:
            bucket.start()
        self.steps = 0
        self.in_flight = True
        self.due = due

    def finish(self) -> bool:
        """Waits and steps; False: there was nothing to step on.

        After a TimeoutError it may be called again: nothing was applied. Raises MismatchError on all ranks if
        they have made different numbers of steps.
        """
        self.counts.end()
        for bucket in self._sent:
            bucket.wait()
        for bucket in self._sent:
            bucket.apply()
        self.in_flight = False
        return bool(self._sent)


class LocalSteps(Generic[Bucket]):
    """The parameters of one mode: their fragments and whose turn it is."""

    keeps_in_step = True  # a rank that makes fewer steps keeps others waiting

    def __init__(
        self, fragments: Sequence[tuple[Sequence[Bucket], EqualSteps] | None], mode: _core.Mode
    ) -> None:
        """``fragments``: each with what compares its steps; None: it has no parameters, but its turn."""
        self._period = mode.period_steps
        self._overlap = mode.overlap
        self._step = 0  # inner steps since the beginning or the last flush
        self._is_flushing = False
        self._fragments = [
            Fragment(
                fragment[0],
                fragment[1],
                (number + 1) * self._period // len(fragments) % self._period,
            )
            for number, fragment in enumerate(fragments)
            if fragment is not None
        ]
        self.anchored = False  # the global copies are there

    @property
    def buckets(self) -> Iterator[Bucket]:
        """Of all fragments."""
        return (bucket for fragment in self._fragments for bucket in fragment.buckets)

    @property
    def counts(self) -> list[EqualSteps]:
        """Of all fragments."""
        return [fragment.counts for fragment in self._fragments]

    @property
    def names(self) -> list[str]:
        """Of the parameters."""
        return [name for bucket in self.buckets for name in bucket.names]

    def anchor(self) -> None:
        """The parameters, which are the same on all ranks, are the global copy."""
        for outer in self.buckets:
            outer.anchor()
        self.anchored = True

    @property
    def settled(self) -> bool:
        """No step was made since the last outer step, and none is under way."""
        return not any(fragment.in_flight or fragment.steps for fragment in self._fragments)

    def stepped(self) -> None:
        """After each inner step."""
        self._step += 1
        self._is_flushing = False
        for fragment in self._fragments:
            fragment.steps += 1
            self._finish_when_due(fragment)
            if self._step % self._period == fragment.turn:
                fragment.start(self._step, self._step + self._overlap)
                self._finish_when_due(fragment)

    def _finish_when_due(self, fragment: Fragment[Bucket]) -> None:
        if fragment.in_flight and fragment.due <= self._step:
            fragment.finish()

    @property
    def steps_to_turn(self) -> int:
        """After how many more steps something is exchanged."""
        return min(map(self._steps_to, self._fragments), default=0)

    def _steps_to(self, fragment: Fragment[Bucket]) -> int:
        return (fragment.turn - self._step - 1) % self._period

    def begin_flush(self) -> int:
        """Ends what is under way, and starts an exchange of the inner steps since; how many outer steps it made."""
        if self._is_flushing:
            return 0  # before a TimeoutError
        ended = self._finish_all()
        for fragment in self._fragments:
            fragment.start(self._step, self._step)
        self._is_flushing = True
        return ended

    def end_flush(self) -> int:
        """After begin_flush(): the outer step; how many it made."""
        ended = self._finish_all()
        self._is_flushing = False
        self._step = 0
        return ended

    def _finish_all(self) -> int:
        # A rank that has made more steps waits for the fragment whose turn comes next.
        waiting = sorted((fragment for fragment in self._fragments if fragment.in_flight), key=self._steps_to)
        return sum([fragment.finish() for fragment in waiting])


Item = TypeVar("Item")


def split_by_bytes(items: Sequence[Item], sizes: Sequence[int], parts: int) -> list[list[Item]]:
    """Contiguous parts of about the same bytes; an item belongs to the part its middle is in."""
    total = max(1, sum(sizes))
    split: list[list[Item]] = [[] for _ in range(parts)]
    begin = 0
    for item, size in zip(items, sizes):
        middle_doubled = 2 * begin + size
        split[min(parts - 1, middle_doubled * parts // (2 * total))].append(item)
        begin += size
    return split

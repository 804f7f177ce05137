"""Averaging and gossip: parameters drift together in the background, and no step waits.

A rank puts a snapshot s of its parameters into shared memory from time to time. When the mean over the
ranks of a circle is there, the rank adds mean(s) - s to its current parameters. Averaging: the circle is
all ranks (Bagua's and DADT's asynchronous model averaging). Gossip: circles are pairs, one or two a round
(gossip.py). Then the rank adds the share of the differences that gives every rank the same weight. The
sum of mean(s) - s over the ranks is zero. So only the ranks' own steps move the mean of all replicas.

Rounds are matched by their count, so ranks need not agree on a time. A slow rank delays the averaging and
no other rank's step. Gossip may wait for the round before (wait=1). Then a step is
x(t+1) = W x(t) + what the inner step changed at x(t), the same in every run. That is D-PSGD (Lian et al.
2017, Algorithm 1).

Waiting is not the default. Measured: 4 ranks of 20 ms steps, one of them 4 times slower, and the steps a
second of all ranks as a multiple of sync's. With waiting it is 0.99 (ring) and 1.02 (random), because
partners of partners wait too. Without waiting it is 3.03 and 2.93, and 3.25 is the most possible.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from .. import _core
    from .agreement import Agreement


class AveragedBucket(Protocol):
    """A registered tensor of parameters. Vectors are laid out as it is, in what the framework has for them."""

    @property
    def names(self) -> Sequence[str]:
        """Of its parameters."""

    def private(self) -> Any:
        """A vector of zeros."""

    def copy_parameters(self, vector: Any) -> None:
        """Puts the parameters into a vector."""

    def hand_over_copy(self, vector: Any) -> None:
        """Begins a round with these elements."""

    def test(self) -> bool:
        """wait() would not wait."""

    def wait(self) -> None:
        """The result is in the bucket. After a TimeoutError it may be called again."""

    def subtract(self, vector: Any) -> None:
        """From what is in the bucket."""

    def add(self, other: Any) -> None:
        """To what is in the bucket: what is in another one."""

    def move_parameters(self, share: float) -> None:
        """Adds ``share`` times what is in the bucket, which may be changed."""

    def set_parameters(self) -> None:
        """To what is in the bucket."""


# The buckets that some ranks share; all circles of a rank are laid out alike.
Circle = Sequence[AveragedBucket]


class Averaging:
    """The parameters of one mode and the round that is under way."""

    def __init__(
        self,
        everyone: Circle,
        circles: Callable[[int], Sequence[Circle]],
        share: float,
        mode: _core.Mode,
        agreement: Agreement,
    ) -> None:
        """``circles`` of a round, from 0 on, that this rank is in; ``share`` of the way to each
        one's mean that it goes."""
        self._everyone = everyone
        self._circles = circles
        self._share = share
        self._snapshots = [bucket.private() for bucket in everyone]
        self._mode = mode
        self.agreement = agreement
        self._begun = 0  # rounds, ever
        self._last_round: int | None = None  # of the flush that is under way
        self._under_way: Sequence[Circle] | None = None
        self._begin_counting()

    def _begin_counting(self) -> None:
        self._steps = 0  # since the last flush
        self._steps_at_begin = 0
        self._began_at = time.monotonic()

    @property
    def keeps_in_step(self) -> bool:
        """A rank that makes fewer steps keeps others waiting."""
        return bool(self._mode.wait)

    @property
    def names(self) -> list[str]:
        """Of the parameters."""
        return [name for bucket in self._everyone for name in bucket.names]

    @property
    def settled(self) -> bool:
        """No step was made since the last flush, and no round is under way."""
        return self._under_way is None and not self._steps

    def stepped(self) -> None:
        """After each inner step. Waits for nothing, unless the mode says so."""
        self._steps += 1
        if self._under_way is not None and (self._mode.wait or self.is_there()):
            self._apply()
        if self._under_way is None and self._is_due():
            self._begin(self._circles(self._begun))

    def is_there(self) -> bool:
        """The result of what is under way, if anything is."""
        # All are asked, for being asked makes progress.
        return all([bucket.test() for circle in self._under_way or () for bucket in circle])

    def _is_due(self) -> bool:
        if self._mode.period_steps:
            return self._steps - self._steps_at_begin >= self._mode.period_steps
        return (time.monotonic() - self._began_at) * 1000 >= self._mode.period_ms

    def _begin(self, circles: Sequence[Circle]) -> None:
        for bucket, snapshot in zip(self._everyone, self._snapshots):
            bucket.copy_parameters(snapshot)
        for circle in circles:
            for bucket, snapshot in zip(circle, self._snapshots):
                bucket.hand_over_copy(snapshot)
        self._begun += 1
        self._under_way = circles
        self._steps_at_begin = self._steps
        self._began_at = time.monotonic()

    def _wait(self) -> Sequence[Circle]:
        circles = self._under_way or ()
        for circle in circles:
            for bucket in circle:
                bucket.wait()
        self._under_way = None
        return circles

    def _apply(self) -> None:
        # One bucket of each circle at a time: the same parameters.
        for snapshot, *buckets in zip(self._snapshots, *self._wait()):
            for bucket in buckets:
                bucket.subtract(snapshot)
            for bucket in buckets[1:]:
                buckets[0].add(bucket)
            for bucket in buckets[:1]:
                bucket.move_parameters(self._share)

    def flush(self) -> int:
        """Ends all rounds and makes the replicas identical; how many rounds it ended.

        Ranks may have begun different numbers of rounds and made different numbers of steps. So they
        agree on the greatest number first; those behind begin what is missing, or the others would
        wait for it for ever; one more round, of everyone, whose mean is taken as it is, ends in
        identical bits.
        """
        if self._last_round is None:
            begun, steps = self.agreement.greatest(self._begun, self._steps)
            if steps == 0:  # on all ranks: the last flush still holds
                return 0
            self._last_round = begun + 1
        ended = 0
        while self._under_way is not None or self._begun < self._last_round:
            if self._under_way is None:
                is_last = self._begun + 1 == self._last_round
                self._begin([self._everyone] if is_last else self._circles(self._begun))
            self._end(is_last=self._begun == self._last_round)
            ended += 1
        self._last_round = None
        self._begin_counting()
        return ended

    def _end(self, is_last: bool) -> None:
        if not is_last:
            self._apply()
            return
        self._wait()
        for bucket in self._everyone:
            bucket.set_parameters()

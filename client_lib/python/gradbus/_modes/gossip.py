"""Gossip: which ranks average with each other, and over what. averaging.py does the averaging.

ring: both neighbours, in every round: D-PSGD (Lian et al. 2017). random: one partner, in an order
that every rank draws alike from the seed, as in AD-PSGD (Lian et al. 2018). The pairs of a round are a
function of its number, and a rank takes its rounds in order. So ranks never wait for each other in a cycle.

A pair is a process set of two: a job of its own, independent of other ranks. Its all-reduce moves the
parameters once each way. An all-to-all with splits would need no sets, but it begins with every rank's
lengths and sends a block to everyone. Measured with 4 ranks on 4 agents on two cores, and 4 MiB: a pair's
mean takes 30 ms, an all-to-all with one partner 112 ms. With the last rank 150 ms late, the two ranks that
are not its partner make steps of 80 ms in pairs. In the all-to-all their steps take 320 ms.

A set costs about 20 ms to open and the parameters' size in shared memory, so pairs come from few
matchings of the m ranks. If their number is odd, one of the m is not there. Matching c pairs i and j
where i + j = c modulo m - 1, and the last rank with the i that is left. c is 0, 1, 2, 4, 8, ...,
below m - 1. So a rank has at most 1 + log2(m), rounded up, partners. Matchings c and c' one after the
other move i by c' - c. So every rank is near every other one, as in an exponential graph. A sweep
takes all matchings, each in an order of its own. Replicas that drift by a variance of 1 a step stay
within one of (simulated; ring moves twice the bytes)

    ranks                                        4     16     64
    ring                                      0.85   2.40   7.09
    random, these matchings, in sweeps        1.03   1.75   1.97
    random, these matchings, independently    1.13   1.95   2.17
    random, any matching                      1.13   1.75   1.94

Hence random is the default, and in sweeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from .. import _core

RING = 2  # as gradbus_topology

Pair = tuple[int, int]  # of ranks, the lower one first

_WORD = (1 << 64) - 1


class Topology(Protocol):
    """Which pairs average in which round; the same on every rank."""

    # Of the way to each partner's mean that a rank goes: 2 / (partners + 1), so that a rank's own
    # parameters and those of its partners have the same weight. The matrix of weights is symmetric
    # and its rows add up to 1, so the mean over all ranks stays where it is.
    share: float

    def pairs(self) -> Sequence[Pair]:
        """All that ever meet."""

    def partners(self, rank: int, round_number: int) -> Sequence[int]:
        """Of one rank; none where it is the odd one out."""


def topology_of(mode: _core.Mode, size: int) -> Topology:
    """As the mode has it."""
    return Ring(size) if mode.topology == RING else RandomPairs(size, mode.seed)


class Ring:
    """Everyone with both neighbours."""

    def __init__(self, size: int) -> None:
        self._size = size
        self.share = 2 / 3 if size > 2 else 1.0

    def pairs(self) -> Sequence[Pair]:
        """Rank r and rank r + 1, and the last one and the first."""
        ring = {pair_of(rank, (rank + 1) % self._size) for rank in range(self._size)}
        return sorted(pair for pair in ring if pair[0] != pair[1])

    def partners(self, rank: int, round_number: int) -> Sequence[int]:
        """The same in every round."""
        around = dict.fromkeys([(rank - 1) % self._size, (rank + 1) % self._size])
        return [partner for partner in around if partner != rank]


class RandomPairs:
    """Everyone with one partner, or with none where the number of ranks is odd."""

    share = 1.0

    def __init__(self, size: int, seed: int) -> None:
        self._seed = seed
        self._matchings = [_matching(size, offset) for offset in _offsets(size)]

    def pairs(self) -> Sequence[Pair]:
        """Of all matchings."""
        return sorted(
            {
                (rank, partner)
                for matching in self._matchings
                for rank, partner in enumerate(matching)
                if rank < partner
            }
        )

    def partners(self, rank: int, round_number: int) -> Sequence[int]:
        """From this round's matching."""
        sweep, place = divmod(round_number, max(1, len(self._matchings)))
        if not self._matchings:
            return []
        order = shuffled(len(self._matchings), self._seed, sweep)
        partner = self._matchings[order[place]][rank]
        return [] if partner == rank else [partner]


def pair_of(rank: int, partner: int) -> Pair:
    """Their pair."""
    return (min(rank, partner), max(rank, partner))


def _offsets(size: int) -> list[int]:
    """Which matchings there are."""
    modulus = size + size % 2 - 1
    return [0, *(1 << power for power in range((modulus - 1).bit_length()))] if size > 1 else []


def _matching(size: int, offset: int) -> list[int]:
    """Every rank's partner; itself where it has none."""
    modulus = size + size % 2 - 1
    partners = [(offset - rank) % modulus for rank in range(modulus)]
    alone = next(rank for rank, partner in enumerate(partners) if partner == rank)
    partners[alone] = modulus
    partners.append(alone)
    return [p if p < size else rank for rank, p in enumerate(partners[:size])]


def shuffled(count: int, seed: int, sweep: int) -> list[int]:
    """0 to count - 1 in an order that depends on seed and sweep alone (Fisher and Yates)."""
    order = list(range(count))
    for index in range(count - 1, 0, -1):
        other = _draw(seed, sweep * count + index) % (index + 1)
        order[index], order[other] = order[other], order[index]
    return order


def _draw(seed: int, number: int) -> int:
    """A random 64-bit word: output `number` of splitmix64 (Steele et al. 2014), seeded with `seed` in
    the upper half. Not Python's generator, whose methods may change from one version to the next."""
    word = ((seed << 32) + (number + 1) * 0x9E3779B97F4A7C15) & _WORD
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _WORD
    return word ^ (word >> 31)


class PairSessions:
    """A session for each pair that this rank is in, opened when it is first asked for."""

    def __init__(self, session: _core.Session) -> None:
        self._session = session
        self._opened: dict[Pair, _core.Session | None] = {}

    def open(self, pairs: Sequence[Pair]) -> dict[int, _core.Session]:
        """By partner. Every rank asks for the same pairs in the same order."""
        for pair in pairs:
            if pair not in self._opened:
                self._opened[pair] = self._session.process_set(pair)
        me = self._session.rank
        mine = {a + b - me: self._opened[a, b] for a, b in pairs if me in (a, b)}
        return {partner: one for partner, one in mine.items() if one is not None}

    def close(self) -> None:
        """Leaves them; nothing may be under way."""
        for session in self._opened.values():
            if session is not None:
                session.close()
        self._opened.clear()

"""Gossip as its papers have it: all ranks in one process, in NumPy, for gossip.py.

Written from the formulas and not from the code: x(t+1) = W x(t) + change(x(t)), where W has 1/3 for a
rank and each neighbour on a ring, 1/2 for a rank and its partner. In float32, and in the order in
which the ranks do it, so that bits can be compared: x is added to, mean - x of each pair, times 2/3.
"""

import itertools

import numpy as np

LR, MOMENTUM = np.float32(0.125), np.float32(0.5)  # powers of two: no product is rounded


def targets_of(shapes, number, rank):
    """Each rank has a minimum of its own, which moves."""
    random = np.random.default_rng([number, rank])
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def words(seed, begin, count):
    """Outputs of splitmix64, in NumPy's integers."""
    with np.errstate(over="ignore"):
        steps = np.arange(begin + 1, begin + 1 + count, dtype=np.uint64)
        word = (np.uint64(seed) << np.uint64(32)) + steps * np.uint64(0x9E3779B97F4A7C15)
        word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return [int(each) for each in word ^ (word >> np.uint64(31))]


def matchings(size):
    """Sets of pairs (i, j), i < j, of ranks that exist."""
    even = size + size % 2
    offsets = [0] + [2**k for k in range(20) if 2**k < even - 1]
    found = []
    for offset in offsets if size > 1 else []:
        pairs = {
            (i, j) for i, j in itertools.combinations(range(even - 1), 2) if (i + j) % (even - 1) == offset
        }
        (left,) = set(range(even - 1)) - {rank for pair in pairs for rank in pair}
        found.append(sorted(pair for pair in pairs | {(left, even - 1)} if max(pair) < size))
    return found


def pairs_of_round(topology, size, seed, number):
    if topology == "ring":
        return sorted({tuple(sorted((i, (i + 1) % size))) for i in range(size) if size > 1})
    known = matchings(size)
    if not known:
        return []
    sweep, place = divmod(number, len(known))
    draws = words(seed, sweep * len(known), len(known))
    order = list(range(len(known)))
    for last in reversed(range(1, len(known))):
        other = draws[last] % (last + 1)
        order[last], order[other] = order[other], order[last]
    return known[order[place]]


class Simulation:
    """All ranks, each with SGD with momentum on the distance from its target."""

    def __init__(self, weights, topology, every=1, seed=0, still=False):
        self.weights = weights  # by rank: name -> array
        self.velocities = [{n: np.zeros_like(w) for n, w in each.items()} for each in weights]
        self.topology, self.every, self.seed, self.still = topology, every, seed, still
        self.round, self.number, self.began = 0, 0, 0
        self.corrections = None  # by rank, of the round that is under way

    def step(self, data):
        """A step of every rank; the round before ends after it."""
        for rank, weights in enumerate(self.weights):
            targets = targets_of({n: w.shape for n, w in weights.items()}, data, rank)
            for name, weight in weights.items():
                if not self.still:
                    velocity = self.velocities[rank][name] = (
                        MOMENTUM * self.velocities[rank][name] + (weight - targets[name])
                    )
                    weight -= LR * velocity
        self.number += 1
        if self.corrections is not None:
            self.land()
        if self.number - self.began >= self.every:
            self.take_off()

    def take_off(self):
        size = len(self.weights)
        pairs = pairs_of_round(self.topology, size, self.seed, self.round)
        share = np.float32(2 / 3 if self.topology == "ring" and size > 2 else 1)
        self.corrections = []
        for rank, mine in enumerate(self.weights):
            # The neighbour before, then the one behind; on a ring of two they are one.
            partners = [(set(pair) - {rank}).pop() for pair in pairs if rank in pair]
            partners.sort(key=lambda partner: (rank - partner) % size)
            correction = {}
            for name, own in mine.items():
                ways = [(own + self.weights[p][name]) / np.float32(2) - own for p in partners]
                correction[name] = share * sum(ways[1:], ways[0]) if ways else np.zeros_like(own)
            self.corrections.append(correction)
        self.round += 1
        self.began = self.number

    def land(self):
        for weights, correction in zip(self.weights, self.corrections):
            for name, weight in weights.items():
                weight += correction[name]
        self.corrections = None

    def flush(self):
        """What is under way, then the mean of all, to be taken as the ranks have summed it."""
        ended = 1
        if self.corrections is not None:
            self.land()
            ended += 1
        self.round += 1
        self.number = self.began = 0
        names = self.weights[0]
        return ended, {n: sum(w[n].astype(np.float64) for w in self.weights) / len(self.weights) for n in names}

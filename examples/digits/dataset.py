"""The digits data, and the random numbers of the example: what README.md defines, in Python.

Everything is a function of the seed alone, so any number of ranks, and the C++ twin, see the same
batches and begin from the same parameters.
"""

from __future__ import annotations

import math
import pathlib

import numpy as np

DATA = pathlib.Path(__file__).parent / "data" / "optdigits.csv"
PIXELS = 64
CLASSES = 10
PIXEL_MAX = 16
TEST_EVERY = 5
_MASK = (1 << 64) - 1


class SplitMix64:
    """The generator of Steele, Lea and Flood (OOPSLA 2014): tiny, and the same in any language."""

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def next(self) -> int:
        """64 bits."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        z = self._state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return z ^ (z >> 31)

    def uniform(self, bound: float) -> float:
        """In [-bound, bound)."""
        return ((self.next() >> 11) * 2.0**-53 * 2.0 - 1.0) * bound


def load(fold: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """train images [1437, 64] in [0, 1], their labels, test images [360, 64], their labels.

    In folds 2 to 4 one image more is for training and one less for testing.
    """
    table = np.loadtxt(DATA, delimiter=",", dtype=np.int64)
    images = (table[:, :PIXELS] / PIXEL_MAX).astype(np.float32)
    labels = table[:, PIXELS]
    is_test = np.arange(len(table)) % TEST_EVERY == fold
    return images[~is_test], labels[~is_test], images[is_test], labels[is_test]


def initial_layers(widths: list[int], seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """(weight [out, in], bias [out]) of each layer, uniform in +-1/sqrt(in)."""
    random = SplitMix64(seed)
    layers = []
    for fan_in, fan_out in zip(widths, widths[1:]):
        bound = 1.0 / math.sqrt(fan_in)
        numbers = [random.uniform(bound) for _ in range(fan_out * (fan_in + 1))]
        weight = np.array(numbers[: fan_out * fan_in], dtype=np.float32).reshape(fan_out, fan_in)
        layers.append((weight, np.array(numbers[fan_out * fan_in :], dtype=np.float32)))
    return layers


def epoch_order(count: int, seed: int, epoch: int) -> np.ndarray:
    """The order of the training images in an epoch (Fisher and Yates, from the end)."""
    random = SplitMix64(seed + 1000003 * (epoch + 1))
    order = np.arange(count)
    for last in range(count - 1, 0, -1):
        other = random.next() % (last + 1)
        order[last], order[other] = order[other], order[last]
    return order

"""Which parameters no rank has used: their ``.grad`` stays None, as in one process.

A zero instead of None would move them by momentum and weight decay. So a dense bucket ends with one more element
for each slot: 1 from a rank that has a gradient, 0 from one that has none. The sum or mean of these is 0 only
where nobody has one. A rank looks only at slots for which it has none itself: on a device, a look waits.

A rank that gives up the step sends NaN instead: ../_exchange/aborted_steps.py.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch


class UsedFlags:
    """Of one bucket, behind its slots."""

    def __init__(self, flat: torch.Tensor, start: int) -> None:
        self._flags = flat[start:]  # keeps the memory mapped
        self._ones = torch.ones_like(self._flags)
        # In host memory, a memoryview is written in a tenth of the time of copy_().
        self._memory = _memory_of(self._flags)
        self._bytes_of_ones = bytes(_memory_of(self._ones) or b"")
        self._top_byte = flat.element_size() - 1  # of the first flag

    @property
    def are_given_up(self) -> bool:
        """After the exchange: a rank has sent NaN. Seen in host memory only."""
        # Numbers of ranks are far from the exponent of NaN, whose first bits are in the last byte for every dtype.
        return self._memory is not None and self._memory[self._top_byte] & 0x7C == 0x7C

    def write(self, unset: Sequence[int], gives_up: bool = False) -> None:
        """Before the exchange; ``unset``: numbers of the slots without a gradient on this rank."""
        if gives_up:
            self._flags.fill_(float("nan"))
            return
        if self._memory is None:
            self._flags.copy_(self._ones)
        else:
            self._memory[:] = self._bytes_of_ones
        for number in unset:
            self._flags[number] = 0

    def unused(self, unset: Sequence[int]) -> list[int]:
        """After the exchange: those of them for which no rank has one."""
        if not unset:
            return []
        flags = self._flags.tolist()
        return [number for number in unset if flags[number] == 0]


def _memory_of(tensor: torch.Tensor) -> memoryview | None:
    if tensor.device.type != "cpu":
        return None
    size = tensor.numel() * tensor.element_size()
    return memoryview((ctypes.c_ubyte * size).from_address(tensor.data_ptr())).cast("B")

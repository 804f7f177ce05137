"""The elements of a registered tensor as memory of Python, for those who have no tensors of a framework."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .. import _core


def memory_of(bucket: _core.Bucket, item: Any) -> list[Any]:
    """An array of ``item``, a type of ctypes, for each delay slot. It keeps the memory mapped.

    NumPy does not read bfloat16 through DLPack, so the address is taken: a DLTensor begins with it.
    """
    return [_array_of(capsule, bucket.count, item) for capsule in bucket.delay_slots()]


def _array_of(capsule: Any, count: int, item: Any) -> Any:
    if not count:
        return (item * 0)()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    address = ctypes.cast(pointer(capsule, b"dltensor"), ctypes.POINTER(ctypes.c_void_p))[0]
    memory = (item * count).from_address(address or 0)
    memory.owner = capsule
    return memory

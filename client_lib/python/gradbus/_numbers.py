"""Python's own numbers and lists of them, as the operations take and return them.

No framework is needed: they travel as float64, int64 or truth values in an ``array.array``. A mean is a
float, whatever goes into it.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from ._errors import bad_argument

_DTYPES = {"d": "float64", "q": "int64", "B": "bool"}


class Numbers:
    """One number (``shape`` is ()) or a list of them."""

    def __init__(self, code: str, values: Sequence[Any], shape: tuple[int, ...]) -> None:
        self.data = array(code, values)
        self.shape = shape

    def as_python(self) -> Any:
        """The number, or a list of them."""
        values = [bool(value) for value in self.data] if self.data.typecode == "B" else list(self.data)
        return values if self.shape else values[0]

    @property
    def dtype(self) -> str:
        """The name that frameworks give it."""
        return _DTYPES[self.data.typecode]


def numbers_of(value: Any, what: str, mean: bool = False) -> Any:
    """``value`` as Numbers where it is one of Python's own, else itself; ``mean``: it becomes floats."""
    if type(value) in (bool, int, float):  # numpy's float64 is a float, too
        return _checked([value], (), what, mean)
    if isinstance(value, (list, tuple)) and all(isinstance(v, (bool, int, float)) for v in value):
        return _checked(value, (len(value),), what, mean)
    return value


def _checked(values: Sequence[Any], shape: tuple[int, ...], what: str, mean: bool) -> Numbers:
    if mean or not values or any(isinstance(value, float) for value in values):
        code = "d"
    else:
        code = "B" if all(isinstance(value, bool) for value in values) else "q"
    try:
        return Numbers(code, values, shape)
    except OverflowError:
        raise bad_argument(
            f"{what} has an integer that 64 bits do not hold", "pass a float"
        ) from None


class PythonNumbers:
    """The row of Numbers in _arrays.framework_of()."""

    def contiguous(self, array: Any, what: str) -> Any:
        return array

    def as_bytes(self, array: Any) -> Any:
        return memoryview(array.data).cast("B")

    def exported(self, array: Any) -> Any:
        return array.data

    def empty(self, like: Any, shape: tuple[int, ...]) -> Any:
        rows = shape[0] if shape else 1
        return Numbers(like.data.typecode, bytes(rows) if like.dtype == "bool" else [0] * rows, shape)

    def copy(self, source: Any, target: Any) -> None:
        target.data[:] = source.data

    def returned(self, result: Any, like: Any) -> Any:
        return result.as_python()

    def item_bytes(self, array: Any) -> int:
        return array.data.itemsize

    def dtype_name(self, array: Any) -> str:
        return array.dtype

    def integers(self, values: list[int]) -> Any:
        return values

    def scaled(self, array: Any, factor: float) -> Any:
        scaled = (int(value * factor) for value in array.data)
        return Numbers(array.data.typecode, list(scaled), array.shape)

    def parts(self, array: Any) -> Any:
        return array

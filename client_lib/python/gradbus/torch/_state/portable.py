"""Values of a checkpoint in types that torch.load(weights_only=True) takes, so that nothing in a file can run."""

from __future__ import annotations

import io
from typing import Any

import torch

from ..._errors import InvalidError, bad_argument

# The only key of what stands for another value. torch 1.13 does not load Python's own floating-point numbers.
_FLOAT, _ARRAY = "gradbus.float", "gradbus.array"


def to_portable(value: Any, place: str = "") -> Any:
    """A copy without Python's floating-point numbers and numpy's types, which torch would not load.

    ``place``: in the whole, for errors. Raises InvalidError for a value that no checkpoint can bring back.
    """
    kind = type(value)
    if kind.__module__ == "numpy" and getattr(value, "ndim", None) == 0 and not value.dtype.hasobject:
        value = value.item()
        kind = type(value)
    if isinstance(value, dict):
        return {key: to_portable(item, f"{place}[{key!r}]") for key, item in value.items()}
    if kind in (list, tuple):
        return kind(to_portable(item, f"{place}[{number}]") for number, item in enumerate(value))
    if isinstance(value, float):
        return {_FLOAT: float(value).hex()}
    if kind in (bool, int, str, type(None)) or isinstance(value, torch.Tensor):
        return value
    if kind.__module__ == "numpy" and kind.__name__ == "ndarray":
        return _array_to_portable(value, place)
    return _checked(value, place)


def from_portable(value: Any) -> Any:
    """The reverse."""
    if isinstance(value, dict):
        if value.keys() == {_FLOAT}:
            return float.fromhex(value[_FLOAT])
        if value.keys() == {_ARRAY}:
            return _array_from_portable(*value[_ARRAY])
        return {key: from_portable(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(from_portable, value))
    return value


def _array_to_portable(array: Any, place: str) -> Any:
    if array.dtype.hasobject or array.dtype.kind == "V":
        raise _cannot_hold(f"a numpy array of dtype {array.dtype}", place)
    data = torch.frombuffer(bytearray(array.tobytes()), dtype=torch.uint8) if array.size else torch.zeros(0)
    return {_ARRAY: (array.dtype.str, tuple(array.shape), data)}


def _array_from_portable(dtype: str, shape: tuple[int, ...], data: torch.Tensor) -> Any:
    import numpy as np

    made = np.empty(shape, dtype)
    if made.size:
        made.reshape(-1).view(np.uint8)[...] = data.numpy()
    return made


def _checked(value: Any, place: str) -> Any:
    """Some other types can be loaded: torch knows which."""
    written = io.BytesIO()
    try:
        torch.save(value, written)
        written.seek(0)
        torch.load(written, weights_only=True)
    except Exception as error:
        raise _cannot_hold(f"a {type(value).__name__}", place) from error
    return value


def _cannot_hold(what: str, place: str) -> InvalidError:
    return bad_argument(
        f"state_dict: {place} is {what}, which torch.load(weights_only=True) would not bring back",
        "keep numbers, text, tensors, numpy arrays, lists and dictionaries in an optimizer's options and state",
    )

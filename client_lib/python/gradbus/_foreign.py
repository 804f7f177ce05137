"""Arrays of JAX, TensorFlow and MXNet in the operations: read as NumPy arrays, results in the caller's type.

None of these libraries is imported here: whoever has one of their arrays has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def _of_jax(array: Any, what: str) -> Any:
    return sys.modules["numpy"].asarray(array)


def _to_jax(result: Any, like: Any) -> Any:
    jax = sys.modules["jax"]
    return jax.device_put(result, like.sharding if hasattr(like, "sharding") else None)


def _of_tensorflow(tensor: Any, what: str) -> Any:
    from ._errors import bad_argument

    if hasattr(tensor, "numpy"):
        return tensor.numpy()
    raise bad_argument(f"{what} has no value yet (tf.function)", "use the operation of gradbus.tensorflow")


def _to_tensorflow(result: Any, like: Any) -> Any:
    return sys.modules["tensorflow"].convert_to_tensor(result)


def _of_mxnet(array: Any, what: str) -> Any:
    return array.asnumpy() if hasattr(array, "asnumpy") else array


def _to_mxnet(result: Any, like: Any) -> Any:
    context = like.context if hasattr(like, "context") else None
    made = sys.modules["mxnet"].nd.array(result, ctx=context, dtype=result.dtype)
    return made.as_np_ndarray() if type(like).__name__ == "ndarray" else made


class ForeignRow:
    """A row of _arrays.framework_of(): what it does not say itself, NumPy's row does."""

    def __init__(self, numpy_row: Any, given: Callable[..., Any], returned: Callable[..., Any]) -> None:
        self._numpy = numpy_row
        self._given = given
        self._returned = returned

    def __getattr__(self, name: str) -> Any:
        return getattr(self._numpy, name)

    def contiguous(self, array: Any, what: str) -> Any:
        return self._numpy.contiguous(self._given(array, what), what)

    def returned(self, result: Any, like: Any) -> Any:
        return self._returned(result, like)

    def integers(self, values: list[int]) -> Any:
        return self._returned(self._numpy.integers(values), None)

    def copy(self, source: Any, target: Any) -> None:
        from ._errors import bad_argument

        raise bad_argument(
            f"a {type(target).__name__} cannot be changed in place", "use the form that returns a new one"
        )

    def dtype_name(self, array: Any) -> str:
        return str(getattr(array.dtype, "name", array.dtype))


class MxnetRow(ForeignRow):
    """Arrays that can be changed in place. Their dtype is a class of NumPy."""

    def copy(self, source: Any, target: Any) -> None:
        target[:] = source

    def dtype_name(self, array: Any) -> str:
        return str(sys.modules["numpy"].dtype(array.dtype))


def rows(numpy_row: Any) -> dict[str, ForeignRow]:
    """By the package of a class of arrays."""
    return {
        "jaxlib": ForeignRow(numpy_row, _of_jax, _to_jax),
        "tensorflow": ForeignRow(numpy_row, _of_tensorflow, _to_tensorflow),
        "mxnet": MxnetRow(numpy_row, _of_mxnet, _to_mxnet),
    }


def package_of(array: Any) -> str:
    """The first part of its class's module."""
    return type(array).__module__.partition(".")[0]

"""What the operations need to know about numpy and torch, without importing either.

An *exporter* is an object whose memory the extension can reach (DLPack, buffer protocol or
``__array_interface__``). numpy arrays and torch CPU tensors are made into contiguous exporters here,
and results get the caller's type; any other exporter is used as it is.
"""

from __future__ import annotations

import math
import sys
from typing import Any, Protocol

from . import _foreign
from ._errors import bad_argument
from ._numbers import Numbers, PythonNumbers


class Framework(Protocol):
    """How to prepare, allocate and copy the arrays of one library."""

    def contiguous(self, array: Any, what: str) -> Any:
        """The array itself when the extension can read it in place, else a contiguous copy."""

    def as_bytes(self, array: Any) -> Any:
        """A one-dimensional uint8 view of a contiguous array, for dtypes that are only moved."""

    def exported(self, array: Any) -> Any:
        """What the extension reads of a contiguous array."""

    def parts(self, array: Any) -> Any:
        """A contiguous array of complex numbers as the array of their real and imaginary parts, a view."""

    def scaled(self, array: Any, factor: float) -> Any:
        """A new array of integers: multiplied as float64, truncated toward zero."""

    def empty(self, like: Any, shape: tuple[int, ...]) -> Any:
        """A new contiguous array of the same dtype."""

    def copy(self, source: Any, target: Any) -> None:
        """Elements of `source` into `target`, whatever its strides and its device."""

    def returned(self, result: Any, like: Any) -> Any:
        """The result where `like` lies: itself in host memory, else a copy on the device."""

    def item_bytes(self, array: Any) -> int:
        """Bytes of one element."""

    def dtype_name(self, array: Any) -> str:
        """For messages and for `is_native`, e.g. ``float32``."""

    def integers(self, values: list[int]) -> Any:
        """A new one-dimensional int64 array."""


FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int32", "int64", "int8", "uint8", "int16", "uint16", "uint32", "uint64")
COMPLEX = ("complex64", "complex128")
BOOL = "bool"


def device_type_of(tensor: Any) -> str:
    """Of a torch tensor."""
    return str(tensor.device.type)


class _Numpy:
    def contiguous(self, array: Any, what: str) -> Any:
        if array.dtype.hasobject:
            raise bad_argument(
                f"{what} has dtype {array.dtype}, which refers to Python objects",
                "use broadcast_object() or allgather_object()",
            )
        return sys.modules["numpy"].ascontiguousarray(array).reshape(array.shape)

    def as_bytes(self, array: Any) -> Any:
        return array.reshape(-1).view("uint8")

    def exported(self, array: Any) -> Any:
        return array

    def parts(self, array: Any) -> Any:
        return array.reshape(-1).view(array.real.dtype)

    def scaled(self, array: Any, factor: float) -> Any:
        numpy = sys.modules["numpy"]
        return numpy.asarray(array.astype("float64") * factor).astype(array.dtype)

    def empty(self, like: Any, shape: tuple[int, ...]) -> Any:
        return sys.modules["numpy"].empty(shape, dtype=like.dtype)

    def copy(self, source: Any, target: Any) -> None:
        target[...] = source

    def returned(self, result: Any, like: Any) -> Any:
        return result

    def item_bytes(self, array: Any) -> int:
        return int(array.itemsize)

    def dtype_name(self, array: Any) -> str:
        return str(array.dtype)

    def integers(self, values: list[int]) -> Any:
        return sys.modules["numpy"].array(values, dtype="int64")


class _Torch:
    def contiguous(self, array: Any, what: str) -> Any:
        _refuse_nested(array, what)
        if array.layout != sys.modules["torch"].strided:
            raise bad_argument(f"{what} is sparse ({array.layout})", "pass it .to_dense()")
        if array.device.type == "meta":
            raise bad_argument(f"{what} is on meta, where it has no values", "pass one with memory")
        # A copy from a device follows what is in the current stream, and is there when it returns.
        on_host = array.detach() if device_type_of(array) == "cpu" else _copy_on_host(array)
        if on_host.is_conj() or on_host.is_neg():  # torch has noted to do it later
            on_host = on_host.resolve_conj().resolve_neg()
        return on_host.contiguous()

    def as_bytes(self, array: Any) -> Any:
        return _flat(array).view(sys.modules["torch"].uint8)

    def exported(self, array: Any) -> Any:
        return array if array.numel() > 1 else _flat(array)

    def parts(self, array: Any) -> Any:
        return sys.modules["torch"].view_as_real(_flat(array))

    def scaled(self, array: Any, factor: float) -> Any:
        return (array.to(sys.modules["torch"].float64) * factor).to(array.dtype)

    def empty(self, like: Any, shape: tuple[int, ...]) -> Any:
        return sys.modules["torch"].empty(shape, dtype=like.dtype, device="cpu")

    def copy(self, source: Any, target: Any) -> None:
        target.detach().copy_(source)

    def returned(self, result: Any, like: Any) -> Any:
        return result if device_type_of(like) == "cpu" else result.to(like.device)

    def item_bytes(self, array: Any) -> int:
        return int(array.element_size())

    def dtype_name(self, array: Any) -> str:
        return str(array.dtype).replace("torch.", "")

    def integers(self, values: list[int]) -> Any:
        torch = sys.modules["torch"]
        return torch.tensor(values, dtype=torch.int64, device="cpu")


def _flat(array: Any) -> Any:
    """A contiguous tensor in one dimension. The strides of one with a single element may be any."""
    return array.as_strided((array.numel(),), (1,))


def _copy_on_host(array: Any) -> Any:
    return array.detach().to("cpu", copy=True)


_NUMPY = _Numpy()
_TORCH = _Torch()
_NUMBERS = PythonNumbers()
_FOREIGN = _foreign.rows(_NUMPY)


def framework_of(array: Any) -> Framework | None:
    """The row of numpy, torch, JAX, TensorFlow or Numbers, or None for any other object."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return _TORCH
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(array, (numpy.ndarray, numpy.generic)):
        return _NUMPY
    if isinstance(array, Numbers):
        return _NUMBERS
    return _FOREIGN.get(_foreign.package_of(array)) if hasattr(array, "dtype") else None


def check_writable(array: Any, what: str) -> None:
    """InvalidError unless results can be written to every element of a numpy array or torch tensor."""
    if hasattr(array, "data_ptr"):
        _refuse_nested(array, what)
        strided = array.layout == sys.modules["torch"].strided and array.numel() > 1
        stride = array.stride() if strided else ()
        if any(step == 0 and size > 1 for step, size in zip(stride, array.shape)):
            raise bad_argument(
                f"{what} has several elements in one place (expand())", "pass it .contiguous()"
            )
    elif not getattr(getattr(array, "flags", None), "writeable", True):
        raise bad_argument(f"{what} is not writable", "pass a writable array")


def _refuse_nested(tensor: Any, what: str) -> None:
    if tensor.is_nested:
        raise bad_argument(f"{what} is nested: its rows have shapes of their own", "pass each of .unbind()")


def needs_gradient(tensor: Any) -> bool:
    """Whether autograd is to see what happens to it."""
    return bool(getattr(tensor, "requires_grad", False) and sys.modules["torch"].is_grad_enabled())


def is_same_memory(prepared: Any, original: Any) -> bool:
    """True when `prepared` is a view of `original`, so that writing to it is writing in place."""
    if hasattr(original, "data_ptr"):
        return bool(prepared.data_ptr() == original.data_ptr())
    numpy = sys.modules["numpy"]
    return isinstance(original, numpy.ndarray) and bool(numpy.shares_memory(prepared, original))


def note_write(array: Any) -> None:
    """Tells torch that a tensor was changed, so autograd refuses to use it as what it was."""
    if hasattr(array, "is_inference") and not array.is_inference():
        array.detach().as_strided((0,), (1,)).zero_()


def is_native(framework: Framework, array: Any) -> bool:
    """True for dtypes whose arrays the extension reads as they are. Others travel as bytes: also
    bool, which not every version of torch exports."""
    return framework.dtype_name(array) in FLOATS + INTEGERS and not hides_bfloat16(array)


def hides_bfloat16(array: Any) -> bool:
    """NumPy has no bfloat16 of its own: no protocol tells the dtype that ml_dtypes adds to it."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(array, numpy.ndarray) and array.dtype.name == "bfloat16"


def row_elements(shape: tuple[int, ...]) -> int:
    """Elements of one row: of what lies behind one index of axis 0."""
    return math.prod(shape[1:])


def rows_of(counts: list[int], shape: tuple[int, ...], what: str) -> list[int]:
    """Rows of each rank's block, from their elements; ``shape`` is this rank's."""
    row = row_elements(shape)
    for rank, count in enumerate(counts):
        if count % row != 0:
            raise bad_argument(
                f"{what}: rank {rank} brought {count} elements, no multiple of this rank's rows of {row}",
                "give the tensor the same shape on every rank, except axis 0",
            )
    return [count // row for count in counts]

"""XLA's foreign function interface by ctypes: no compiler, and nothing of jaxlib is linked.

The structures are those of xla/ffi/api/c_api.h, version 0 of the interface. Each begins with its size, and fields are
only added to its end. XLA calls `handler` on a thread of its own. The handler gives it a future and returns. XLA then
continues with what does not need the result, so operations may be in flight in any order, and no order can deadlock.
"""

from __future__ import annotations

import ctypes as c
import math
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import ml_dtypes
import numpy as np

Perform = Callable[[str, list[Any], list[Any]], None]  # attribute, inputs, outputs

_METADATA = 1  # XLA_FFI_Extension_Metadata
_INSTANTIATE = 0  # XLA_FFI_ExecutionStage
_INTERNAL = 13  # XLA_FFI_Error_Code
_THREADS_MAX = 512

# XLA_FFI_DataType
DTYPES = {number: np.dtype(kind) for number, kind in {
    1: np.bool_, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 6: np.uint8, 7: np.uint16, 8: np.uint32,
    9: np.uint64, 10: np.float16, 11: np.float32, 12: np.float64, 15: np.complex64, 16: ml_dtypes.bfloat16,
    18: np.complex128, 19: ml_dtypes.float8_e5m2, 20: ml_dtypes.float8_e4m3fn,
}.items()}  # fmt: skip


class _Struct(c.Structure):
    """All begin like this."""

    _fields_ = [("struct_size", c.c_size_t), ("extension", c.c_void_p)]


class _Version(_Struct):
    _fields_ = [("major", c.c_int), ("minor", c.c_int)]


class _Metadata(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("version", _Version), ("traits", c.c_uint32)]


class _Extension(c.Structure):
    _fields_ = [
        ("struct_size", c.c_size_t), ("type", c.c_int), ("next", c.c_void_p), ("metadata", c.POINTER(_Metadata))
    ]  # fmt: skip


class _Buffer(_Struct):
    _fields_ = [("dtype", c.c_int), ("data", c.c_void_p), ("rank", c.c_int64), ("dims", c.POINTER(c.c_int64))]


class _Buffers(_Struct):
    _fields_ = [("size", c.c_int64), ("types", c.c_void_p), ("values", c.POINTER(c.POINTER(_Buffer)))]


class _Text(c.Structure):
    _fields_ = [("data", c.c_void_p), ("size", c.c_size_t)]


class _Attributes(_Struct):
    _fields_ = [
        ("size", c.c_int64), ("types", c.c_void_p), ("names", c.c_void_p), ("values", c.POINTER(c.POINTER(_Text)))
    ]  # fmt: skip


_Function = c.CFUNCTYPE(c.c_void_p, c.c_void_p)
_OTHERS = c.c_void_p * 12  # between the functions that are used here


class _Api(_Struct):
    _fields_ = [
        ("version", _Version), ("internal", c.c_void_p), ("error_create", _Function), ("others", _OTHERS),
        ("future_create", _Function), ("future_set_available", _Function), ("future_set_error", _Function),
    ]  # fmt: skip


class _Frame(_Struct):
    _fields_ = [
        ("api", c.POINTER(_Api)), ("context", c.c_void_p), ("stage", c.c_int), ("inputs", _Buffers),
        ("outputs", _Buffers), ("attributes", _Attributes), ("future", c.c_void_p),
    ]  # fmt: skip


class _ErrorArguments(_Struct):
    _fields_ = [("message", c.c_char_p), ("code", c.c_int)]


class _FutureArguments(_Struct):
    _fields_ = [("future", c.c_void_p), ("error", c.c_void_p)]


def _array(buffer: _Buffer) -> Any:
    """A NumPy view of XLA's memory."""
    shape = tuple(buffer.dims[: buffer.rank])
    dtype = DTYPES[buffer.dtype]
    size = math.prod(shape) * dtype.itemsize
    if size == 0:
        return np.empty(shape, dtype)
    return np.ndarray(shape, dtype, (c.c_uint8 * size).from_address(buffer.data))


def _arrays(buffers: _Buffers) -> list[Any]:
    return [_array(buffers.values[index].contents) for index in range(buffers.size)]


def _error(api: _Api, message: str) -> Any:
    arguments = _ErrorArguments(c.sizeof(_ErrorArguments), None, message.encode(), _INTERNAL)
    return api.error_create(c.addressof(arguments))


class _Threads:
    """Threads that perform operations. Each may wait for other ranks, so one is added when none is idle."""

    def __init__(self) -> None:
        self._work: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._idle = 0
        self._count = 0
        self._lock = threading.Lock()

    def start(self, work: Callable[[], None]) -> None:
        with self._lock:
            is_new = self._idle <= 0 and self._count < _THREADS_MAX
            self._idle -= 0 if is_new else 1
            self._count += is_new
            number = self._count
        self._work.put(work)
        if is_new:
            threading.Thread(target=self._loop, name=f"gradbus-jax-{number}", daemon=True).start()

    def _loop(self) -> None:
        while True:
            self._work.get()()
            with self._lock:
                self._idle += 1


_threads = _Threads()


def _complete(api: _Api, future: Any, work: Callable[[], None]) -> None:
    """XLA keeps buffers and attributes until its future is complete."""
    done = _FutureArguments(c.sizeof(_FutureArguments), None, future, None)
    try:
        work()
    except BaseException as error:
        done.error = _error(api, str(error) or type(error).__name__)
        api.future_set_error(c.addressof(done))
        return
    api.future_set_available(c.addressof(done))


def _attribute(frame: _Frame) -> str:
    text = frame.attributes.values[0].contents
    return c.string_at(text.data, text.size).decode()


def _execute(frame: _Frame, perform: Perform) -> Any:
    attribute = _attribute(frame)
    inputs, outputs = _arrays(frame.inputs), _arrays(frame.outputs)
    api = frame.api.contents
    created = _FutureArguments(c.sizeof(_FutureArguments), None, None, None)
    error = api.future_create(c.addressof(created))
    if error:
        return error
    frame.future = created.future
    _threads.start(lambda: _complete(api, created.future, lambda: perform(attribute, inputs, outputs)))
    return None


def _describe(frame: _Frame) -> None:
    """XLA asks for the version of the interface that we speak: that of its own, whose sizes `register` relies on."""
    metadata = c.cast(frame.extension, c.POINTER(_Extension)).contents.metadata.contents
    version = frame.api.contents.version
    metadata.version.major, metadata.version.minor, metadata.traits = version.major, version.minor, 0


_kept: list[Any] = []  # XLA calls them as long as the process lives


def register(jax: Any, name: str, perform: Perform, check: Callable[[str], None]) -> None:
    """Makes ``name`` a target of ``jax.ffi.ffi_call`` on processors; its one attribute is a text.

    ``check``: called with the text when XLA compiles a call. What it raises ends the compilation.
    """

    @c.CFUNCTYPE(c.c_void_p, c.POINTER(_Frame))
    def handler(pointer: Any) -> Any:
        frame = pointer.contents
        try:
            if frame.extension and c.cast(frame.extension, c.POINTER(_Extension)).contents.type == _METADATA:
                return _describe(frame)
            if frame.stage == _INSTANTIATE:
                return check(_attribute(frame))
            return _execute(frame, perform)
        except BaseException as error:
            return _error(frame.api.contents, f"{type(error).__name__}: {error}")

    new_capsule = c.pythonapi.PyCapsule_New
    new_capsule.restype, new_capsule.argtypes = c.py_object, (c.c_void_p, c.c_char_p, c.c_void_p)
    capsule = new_capsule(c.cast(handler, c.c_void_p), None, None)
    _kept.append(handler)
    jax.ffi.register_ffi_target(name, {"instantiate": capsule, "execute": capsule}, platform="cpu", api_version=1)

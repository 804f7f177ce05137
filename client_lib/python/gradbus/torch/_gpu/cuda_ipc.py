"""Memory of a GPU that another process has: by CUDA's IPC handles, or mapped by its driver.

What is mapped lives while a process has it mapped, or holds a handle of it: the handle is given up as soon as the
memory is mapped, and what fails half-way leaves nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import pathlib
import re
from collections.abc import Callable
from typing import Any, NamedTuple

LEGACY, DESCRIPTOR, FABRIC = 1, 2, 3  # as gradbus_sharing
_LAZY_PEER_ACCESS = 1  # cudaIpcMemLazyEnablePeerAccess
_HANDLE_TYPES = {DESCRIPTOR: 1, FABRIC: 8}  # CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, .._FABRIC
_ON_DEVICE = 1  # CU_MEM_LOCATION_TYPE_DEVICE
_READ_WRITE = 3  # CU_MEM_ACCESS_FLAGS_PROT_READWRITE


class MemoryShare(NamedTuple):
    """As gradbus_device_memory."""

    sharing: int
    descriptor: int
    size: int
    handle: bytes


class CannotOpen(Exception):
    """CUDA's reason."""


class IpcHandle(ctypes.Structure):
    """cudaIpcMemHandle_t."""

    _fields_ = [("words", ctypes.c_uint64 * 8)]


class Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = [("kind", ctypes.c_int), ("device", ctypes.c_int), ("flags", ctypes.c_int)]


class OpenMemory(NamedTuple):
    """Until close() of it; nothing of the device uses it any more then."""

    address: int
    close: Callable[[], None]


def open_memory(share: MemoryShare, device: int, runtime: Any, driver: Callable[[], Any]) -> OpenMemory:
    """In the current context, which is that of the device of this number. Raises CannotOpen."""
    if share.sharing in _HANDLE_TYPES:
        return _map(share, device, driver())
    address = ctypes.c_void_p()
    code = runtime.cudaIpcOpenMemHandle(
        ctypes.byref(address), IpcHandle.from_buffer_copy(share.handle), _LAZY_PEER_ACCESS
    )
    if code != 0:
        raise CannotOpen(f"cudaIpcOpenMemHandle: {error_of(runtime, code)}")
    return OpenMemory(int(address.value or 0), lambda: _close_legacy(runtime, address))


def _close_legacy(runtime: Any, address: ctypes.c_void_p) -> None:
    if runtime.cudaIpcCloseMemHandle(address) != 0:
        runtime.cudaGetLastError()


def _map(share: MemoryShare, device: int, driver: Any) -> OpenMemory:
    size = ctypes.c_size_t(share.size)
    words = ctypes.create_string_buffer(share.handle, len(share.handle))
    source = ctypes.c_void_p(share.descriptor) if share.sharing == DESCRIPTOR else words
    imported, address, number = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_int()
    with contextlib.ExitStack() as undone:
        _must(driver, "cuDeviceGet", ctypes.byref(number), device)
        kind = _HANDLE_TYPES[share.sharing]
        _must(driver, "cuMemImportFromShareableHandle", ctypes.byref(imported), source, kind)
        with _later(driver.cuMemRelease, imported):
            reserving = (ctypes.byref(address), size, ctypes.c_size_t(0), ctypes.c_uint64(0), ctypes.c_uint64(0))
            _must(driver, "cuMemAddressReserve", *reserving)
            undone.callback(driver.cuMemAddressFree, address, size)
            mapping = (address, size, ctypes.c_size_t(0), imported, ctypes.c_uint64(0))
            _must(driver, "cuMemMap", *mapping)
            undone.callback(driver.cuMemUnmap, address, size)
            access = Access(_ON_DEVICE, number.value, _READ_WRITE)
            _must(driver, "cuMemSetAccess", address, size, ctypes.byref(access), ctypes.c_size_t(1))
        return OpenMemory(address.value, undone.pop_all().close)


@contextlib.contextmanager
def _later(call: Callable[..., Any], *arguments: Any) -> Any:
    try:
        yield
    finally:
        call(*arguments)


def _must(driver: Any, name: str, *arguments: Any) -> None:
    code = getattr(driver, name)(*arguments)
    if code != 0:
        text = ctypes.c_char_p()
        driver.cuGetErrorString(code, ctypes.byref(text))
        raise CannotOpen(f"{name}: {(text.value or b'an error without a name').decode()}")


def error_of(runtime: Any, code: int) -> str:
    """CUDA's text; the runtime forgets the error, which torch's next launch would report as its own."""
    runtime.cudaGetLastError()
    runtime.cudaGetErrorString.restype = ctypes.c_char_p
    return str(runtime.cudaGetErrorString(code).decode())


def find_runtime(maps: Callable[[], str] = pathlib.Path("/proc/self/maps").read_text) -> ctypes.CDLL:
    """Torch's own."""
    found = re.search(r"\S*libcudart\S*\.so\S*", maps())
    if not found:
        raise CannotOpen("this torch has CUDA's runtime inside itself")
    return ctypes.CDLL(found[0])


def find_driver() -> ctypes.CDLL:
    """Which the runtime has loaded."""
    return ctypes.CDLL("libcuda.so.1")

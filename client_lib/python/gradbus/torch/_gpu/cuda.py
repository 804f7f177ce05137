"""The staging device that is a GPU: torch's streams and events, and shared memory that is pinned.

A copy to or from memory that CUDA does not know goes through a small buffer of the driver, at a third
of the rate, and stops the thread that asks for it. So each segment of shared memory that a bucket of
a GPU lies in is registered, whole and once: its pages are there already, and a copy must not cross from one
registration to another.
"""

from __future__ import annotations

import contextlib
import pathlib
import threading
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from ..._errors import UnavailableError
from .cuda_ipc import CannotOpen, MemoryShare, OpenMemory, find_driver, find_runtime, open_memory

_cuda: Any = torch.cuda  # not all of it has types
RankBufferShares = tuple[MemoryShare, bytes, bytes]  # memory, and the events `ready` and `done`
_PORTABLE = 1  # cudaHostRegisterPortable: for all devices
_SEGMENT = "/memfd:gradbus"  # as the agent names them


class CudaDevice:
    """See _staging.StagingDevice. Any thread."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.out: Any = _cuda.Stream(device)
        self.back: Any = _cuda.Stream(device)

    def current_stream(self) -> Any:
        """Hooks of backward run with the stream of the gradient."""
        return torch.cuda.current_stream(self._device)

    def new_event(self) -> Any:
        """Waiting for it sleeps."""
        return _cuda.Event(blocking=True)

    def record(self, event: Any, stream: Any) -> None:
        """May be repeated."""
        event.record(stream)

    def wait(self, stream: Any, event: Any) -> None:
        """The device does."""
        stream.wait_event(event)

    def copy(self, stream: Any, source: torch.Tensor, target: torch.Tensor) -> None:
        """Asynchronous where the host's memory is pinned."""
        with torch.cuda.stream(stream), torch.no_grad():
            target.copy_(source, non_blocking=True)

    def zeros_like(self, delay_slot: torch.Tensor) -> torch.Tensor:
        """Its memory is not used again before both streams are done with it."""
        made = torch.zeros(delay_slot.shape, dtype=delay_slot.dtype, device=self._device)
        made.record_stream(self.out)
        made.record_stream(self.back)
        return made

    def pin(self, delay_slot: torch.Tensor) -> None:
        """Warns once, with the reason, when it does not work."""
        PINNED.add(delay_slot)

    def unpin(self, delay_slot: torch.Tensor) -> None:
        """When no delay slot is left in its segment."""
        PINNED.remove(delay_slot)


    def uuid(self) -> bytes:
        """None of a torch that does not tell it."""
        said = str(getattr(_cuda.get_device_properties(self._device), "uuid", ""))
        digits = said.replace("GPU-", "").replace("-", "")
        return bytes.fromhex(digits) if len(digits) == 32 else b""

    def open_rank_buffer(self, shares: RankBufferShares, delay_slot: torch.Tensor) -> CudaRankBuffer:
        """Raises UnavailableError."""
        return CudaRankBuffer(self._device, shares, delay_slot)

    def try_memory(self, share: MemoryShare, event: bytes) -> str:
        """Opens and closes both; "" or why not."""
        try:
            memory = _open_memory(self._device, share)
            try:
                _cuda.Event.from_ipc_handle(self._device, event)
            finally:
                memory.close()
        except Exception as error:  # noqa: BLE001  # whatever torch says: the agent has other ways
            return str(error).partition("\n")[0] or type(error).__name__
        return ""


class CudaRankBuffer:
    """See _staging.RankBuffer."""

    def __init__(self, device: torch.device, shares: RankBufferShares, delay_slot: torch.Tensor) -> None:
        share, ready, done = shares
        self._device = device
        self._memory = _opened_or_raise(device, share)
        elements = _Bytes(self._memory.address, delay_slot.numel() * delay_slot.element_size())
        self.vector: torch.Tensor = torch.as_tensor(elements, device=device).view(delay_slot.dtype)
        self.ready: Any = _cuda.Event.from_ipc_handle(device, ready)
        self.done: Any = _cuda.Event.from_ipc_handle(device, done)

    def close(self) -> None:
        """When the device is done with it."""
        with torch.cuda.device(self._device):
            torch.cuda.current_stream().synchronize()
            self._memory.close()


class _Bytes:
    """Memory of a device, as torch.as_tensor() takes it."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, False), "shape": (size,), "typestr": "|u1", "version": 3,
        }  # fmt: skip


def _open_memory(device: torch.device, share: MemoryShare) -> OpenMemory:
    with torch.cuda.device(device):
        torch.cuda.current_stream()  # the device's context is there
        return open_memory(share, torch.cuda.current_device(), find_runtime(), find_driver)


def _opened_or_raise(device: torch.device, share: MemoryShare) -> OpenMemory:
    try:
        return _open_memory(device, share)
    except CannotOpen as error:
        raise UnavailableError(
            f"GB-D628 NOT_ON_GPU: memory that the agent has on {device} cannot be opened here: {error} | next: run "
            "the program without GRADBUS_DEVICE_MEMORY=1"
        ) from None


class Segment(NamedTuple):
    """A mapping of shared memory."""

    begin: int
    end: int


class PinnedSegments:
    """Those that are registered with CUDA, and how many delay slots want that."""

    def __init__(
        self,
        register: Callable[[int, int], str],
        unregister: Callable[[int], None],
        maps: Callable[[], str],
    ) -> None:
        """``register(address, bytes)``: "" or why not; ``maps``: as /proc/self/maps."""
        self._register = register
        self._unregister = unregister
        self._maps = maps
        self._lock = threading.Lock()
        self._users: dict[Segment, int] = {}
        self._refusal = ""

    def add(self, delay_slot: torch.Tensor) -> None:
        """Private memory (of a process that is alone) stays as it is."""
        segment = segment_of(delay_slot, self._maps())
        if segment is None:
            return
        with self._lock:
            if segment not in self._users and not self._refused(segment):
                self._users[segment] = 0
            if segment in self._users:
                self._users[segment] += 1

    def _refused(self, segment: Segment) -> bool:
        if self._refusal:
            return True
        self._refusal = self._register(segment.begin, segment.end - segment.begin)
        if self._refusal:
            warnings.warn(
                f"gradbus: shared memory cannot be pinned for the GPU ({self._refusal}); copies to and from it will "
                "be slow and stop the thread that asks for them",
                stacklevel=2,
            )
        return bool(self._refusal)

    def remove(self, delay_slot: torch.Tensor) -> None:
        """Before the segment is unmapped."""
        with self._lock:
            segment = next((s for s in self._users if s.begin <= delay_slot.data_ptr() < s.end), None)
            if segment is None:
                return
            self._users[segment] -= 1
            if self._users[segment] == 0:
                del self._users[segment]
                self._unregister(segment.begin)

    def __len__(self) -> int:
        return len(self._users)


def segment_of(delay_slot: torch.Tensor, maps: str) -> Segment | None:
    """The mapping of shared memory that the delay slot lies in, from the text of /proc/self/maps."""
    begin = delay_slot.data_ptr()
    end = begin + delay_slot.numel() * delay_slot.element_size()
    for line in maps.splitlines():
        if _SEGMENT in line:
            mapping = Segment(*(int(word, 16) for word in line.split(maxsplit=1)[0].split("-")))
            if mapping.begin <= begin and end <= mapping.end:
                return mapping
    return None


def _maps() -> str:
    return pathlib.Path("/proc/self/maps").read_text()


def register_with_cuda(address: int, size: int) -> str:
    """"" or the reason why not."""
    cudart = _cuda.cudart()
    if cudart is None:
        return "this torch has no CUDA"
    code = cudart.cudaHostRegister(address, size, _PORTABLE)
    if int(code) == 0:
        return ""
    _forget_error()
    return f"cudaHostRegister: {cudart.cudaGetErrorString(code)}"


def unregister_with_cuda(address: int) -> None:
    """Of what register_with_cuda() has taken."""
    cudart = _cuda.cudart()
    if int(cudart.cudaHostUnregister(address)) != 0:
        _forget_error()


def _forget_error() -> None:
    # The runtime keeps a thread's last error, and torch's next launch would report it as its own.
    with contextlib.suppress(CannotOpen):
        find_runtime().cudaGetLastError()


PINNED = PinnedSegments(register_with_cuda, unregister_with_cuda, _maps)

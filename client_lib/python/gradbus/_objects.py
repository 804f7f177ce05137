"""Python objects between ranks, pickled. Ranks of a job trust each other: unpickling runs their code."""

from __future__ import annotations

import pickle
from array import array
from typing import Any

from ._api import _checked_root
from ._session import current

_LEAST_BYTES = 1024


def _padded(count: int) -> int:
    # Each size of a broadcast is registered once and stays; powers of two make at most 54 of them.
    return max(_LEAST_BYTES, 1 << (count - 1).bit_length())


def broadcast_object(obj: Any = None, root_rank: int = 0, name: str | None = None) -> Any:
    """The root's object, on every rank; other ranks' ``obj`` is ignored.

    Raises InvalidError, PeerLostError, TimeoutError, and what pickle raises.
    """
    session = current()
    is_root = session.rank == _checked_root(root_rank, "broadcast_object")
    payload = pickle.dumps(obj, protocol=4) if is_root else b""
    length = array("q", [len(payload)])
    session.broadcast(_part(name, "length"), length, root_rank).wait()
    body = bytearray(_padded(length[0]))
    if is_root:
        body[: len(payload)] = payload
    session.broadcast(_part(name, f"body{len(body)}"), body, root_rank).wait()
    return obj if is_root else pickle.loads(memoryview(body)[: length[0]])


def _part(name: str | None, part: str) -> str | None:
    return None if name is None else f"{name}/{part}"


def allgather_object(obj: Any, name: str | None = None) -> list[Any]:
    """Every rank's object, in rank order. Raises PeerLostError, TimeoutError, and what pickle raises."""
    operation = current().allgather(name, bytearray(pickle.dumps(obj, protocol=4)))
    operation.wait()
    counts = operation.counts()
    body = bytearray(sum(counts))
    operation.copy_output(body)
    objects = []
    start = 0
    for count in counts:
        objects.append(pickle.loads(memoryview(body)[start : start + count]))
        start += count
    return objects

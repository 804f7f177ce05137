"""Python objects between ranks, pickled. Ranks of a job trust each other: unpickling runs their code."""

from __future__ import annotations

import pickle
from typing import Any

from . import _core
from ._parts import Collective, int64, what_is
from ._process_sets import ProcessSet, checked_root, global_process_set, session_of

_LEAST_BYTES = 1024


def _padded(count: int) -> int:
    # Each size of a broadcast is registered once and stays; powers of two make at most 54 of them.
    return max(_LEAST_BYTES, 1 << (count - 1).bit_length())


def _broadcast(session: _core.Session, name: str | None, data: Any, root: int) -> None:
    session.start([_core.Request(Collective.BROADCAST, name, output=data, root=root)]).wait()


def broadcast_object(
    obj: Any = None,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The root's object, on every rank; other ranks' ``obj`` is ignored.

    Raises InvalidError, PeerLostError, TimeoutError, and what pickle raises.
    """
    what_is("broadcast_object", name)
    session = session_of(process_set, "broadcast_object")
    root = checked_root(root_rank, "broadcast_object", process_set)
    is_root = session.rank == root
    payload = pickle.dumps(obj, protocol=4) if is_root else b""
    length = int64([len(payload)])
    _broadcast(session, _part(name, "length"), length, root)
    body = bytearray(_padded(length[0]))
    if is_root:
        body[: len(payload)] = payload
    _broadcast(session, _part(name, f"body{len(body)}"), body, root)
    return obj if is_root else pickle.loads(memoryview(body)[: length[0]])


def _part(name: str | None, part: str) -> str | None:
    return None if name is None else f"{name}/{part}"


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Every rank's object, in rank order. Raises PeerLostError, TimeoutError, and what pickle raises."""
    what_is("allgather_object", name)
    session = session_of(process_set, "allgather_object")
    payload = bytearray(pickle.dumps(obj, protocol=4))
    operation = session.start([_core.Request(Collective.ALLGATHER, name, payload)])
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

"""Python objects between ranks, pickled.

Unpickling runs the sender's code, so it happens only after the bytes have proven that a rank of this job
has sent them: in front of each pickle is its HMAC-SHA256 under the job's secret, which the coordinator
gives to the ranks of the job's owner and to nobody else. What numbers or JSON can say is not pickled.
"""

from __future__ import annotations

import hashlib
import hmac
import importlib
import json
import pickle
from collections.abc import Sequence
from typing import Any

from . import _core
from ._errors import MismatchError, PermissionError, bad_argument
from ._layout import cut_name
from ._parts import Collective, int64, what_is
from ._process_sets import ProcessSet, checked_root, global_process_set, session_of

_LEAST_BYTES = 1024


def _padded(count: int) -> int:
    # Each size of a broadcast is registered once and stays; powers of two make at most 54 of them.
    return max(_LEAST_BYTES, 1 << (count - 1).bit_length())


_PROOF_BYTES = hashlib.sha256().digest_size


def _proof(session: _core.Session, rank: int, payload: bytes | bytearray | memoryview) -> bytes:
    context = f"gradbus 1 object of rank {rank}\0".encode()
    proof = hmac.new(session.job_secret(), context, hashlib.sha256)
    proof.update(payload)
    return proof.digest()


def _pickled(obj: Any) -> bytes:
    try:
        return pickle.dumps(obj, protocol=4)
    except (pickle.PicklingError, AttributeError, TypeError):
        # Functions and classes that are in no module, and what holds them.
        try:
            pickler = importlib.import_module("cloudpickle")
        except ImportError:
            pickler = None
        if pickler is None:
            raise
        return pickler.dumps(obj, protocol=4)  # type: ignore[no-any-return]


def _sealed(session: _core.Session, obj: Any) -> bytes:
    payload = _pickled(obj)
    return _proof(session, session.rank, payload) + payload


def _opened(session: _core.Session, rank: int, sealed: memoryview) -> Any:
    """The object in what ``rank`` has sent. Raises PermissionError before anything is unpickled."""
    proof, payload = sealed[:_PROOF_BYTES], sealed[_PROOF_BYTES:]
    if not hmac.compare_digest(bytes(proof), _proof(session, rank, payload)):
        raise PermissionError(
            f"GB-J409 OBJECT_NOT_PROVEN: {len(sealed)} bytes that should hold an object of rank {rank} do not "
            f'carry the proof of job "{session.job}"; they were not unpickled | next: make all ranks call the '
            "same operation with the same name; else look for other senders"
        )
    if not payload:
        raise bad_argument(
            f"rank {rank} could not pickle its object; its own error says why",
            "send what pickle takes, or install cloudpickle",
        )
    return pickle.loads(payload)


def _broadcast(session: _core.Session, name: str | None, data: Any, root: int) -> None:
    session.start([_core.Request(Collective.BROADCAST, name, output=data, root=root)]).wait()


def broadcast_object(
    obj: Any = None,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The root's object, on every rank; other ranks' ``obj`` is ignored.

    Raises InvalidError, PeerLostError, TimeoutError, PermissionError for bytes that no rank of the job
    has sent, and what pickle raises. What pickle does not take goes through cloudpickle, if it is installed.
    """
    what_is("broadcast_object", name)
    session = session_of(process_set, "broadcast_object")
    root = checked_root(root_rank, "broadcast_object", process_set)
    if session.rank != root:
        return _opened(session, root, _broadcast_bytes(session, b"", root, name))
    try:
        sealed = _sealed(session, obj)
    except Exception:
        _broadcast_bytes(session, _proof(session, root, b""), root, name)  # the others wait for it
        raise
    _broadcast_bytes(session, sealed, root, name)
    return obj


def broadcast_json(
    obj: Any, root_rank: int, name: str, process_set: ProcessSet = global_process_set
) -> Any:
    """Like :func:`broadcast_object`, for what JSON holds: nothing of it can run. Tuples become lists."""
    session = session_of(process_set, "broadcast_json")
    root = checked_root(root_rank, "broadcast_json", process_set)
    text = json.dumps(obj).encode() if session.rank == root else b""
    return json.loads(bytes(_broadcast_bytes(session, text, root, name)))


def _broadcast_bytes(
    session: _core.Session, payload: bytes, root: int, name: str | None
) -> memoryview:
    length = int64([len(payload)])
    _broadcast(session, _part(name, "length"), length, root)
    body = bytearray(_padded(length[0]))
    body[: len(payload)] = payload
    _broadcast(session, _part(name, f"body{len(body)}"), body, root)
    return memoryview(body)[: length[0]]


def _part(name: str | None, part: str) -> str | None:
    return None if name is None else f"{name}/{part}"


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Every rank's object, in rank order.

    Raises PeerLostError, TimeoutError, PermissionError for bytes that no rank of the job has sent, and
    what pickle raises.
    """
    what_is("allgather_object", name)
    session = session_of(process_set, "allgather_object")
    problem = None
    try:
        payload = bytearray(_sealed(session, obj))
    except Exception as error:  # noqa: BLE001  # the others wait for it
        problem, payload = error, bytearray(_proof(session, session.rank, b""))
    operation = session.start([_core.Request(Collective.ALLGATHER, name, payload)])
    operation.wait()
    if problem is not None:
        raise problem
    counts = operation.counts()
    body = bytearray(sum(counts))
    operation.copy_output(body)
    objects = []
    start = 0
    for rank, count in enumerate(counts):
        objects.append(_opened(session, rank, memoryview(body)[start : start + count]))
        start += count
    return objects


def allgather_int(number: int, name: str) -> list[int]:
    """Every rank's number, in rank order: 64 bits and a sign, not pickled."""
    session = session_of(global_process_set, "allgather_int")
    operation = session.start([_core.Request(Collective.ALLGATHER, name, int64([number]))])
    operation.wait()
    numbers = int64([0] * sum(operation.counts()))
    operation.copy_output(numbers)
    return list(numbers)


def compare_lists(mine: Sequence[str], what: str, name: str, process_set: ProcessSet = global_process_set) -> None:
    """Raises MismatchError on all ranks alike, unless all have the same texts. ``what``: one of them is."""
    session = session_of(process_set, name)
    digest = bytearray(hashlib.sha256("\0".join(mine).encode()).digest())
    operation = session.start([_core.Request(Collective.ALLGATHER, cut_name(f"{name}/digest"), digest)])
    operation.wait()
    digests = bytearray(sum(operation.counts()))
    operation.copy_output(digests)
    if digests == digest * session.size:
        return
    lists = allgather_object(list(mine), cut_name(f"{name}/lists"), process_set)
    other = next(rank for rank, theirs in enumerate(lists) if theirs != lists[0])
    ours, theirs = lists[0], lists[other]
    at = next((at for at, pair in enumerate(zip(ours, theirs)) if pair[0] != pair[1]), min(len(ours), len(theirs)))
    has = [texts[at] if at < len(texts) else "none" for texts in (ours, theirs)]
    raise MismatchError(
        f"GB-O902 TENSOR_MISMATCH: {name}: {what} {at + 1} is {has[0]} on rank {process_set.ranks[0]}, and {has[1]} on "
        f"rank {process_set.ranks[other]} | next: build the same model on all ranks"
    )

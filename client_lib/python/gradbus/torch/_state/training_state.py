"""All that a DistributedOptimizer keeps, as one object for a checkpoint. Main thread."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Container, Iterator
from typing import Any

import torch

from ..._errors import InvalidError, MismatchError, TimeoutError, bad_argument
from ..._objects import allgather_object, broadcast_object
from ..._ops import Average
from ..._process_sets import session_of
from .portable import from_portable, to_portable
from .residual_state import CompressionState, reshard_compression_state

_VERSION = 1


class TrainingState:
    """What ``state()`` returns. A ``Stateful`` of torch.distributed.checkpoint."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self._process_set = _owner_of_set(optimizer).process_set

    def state_dict(self) -> dict[str, Any]:
        """``{"gradbus": bytes}`` on the first rank, and ``{}`` on the others. All ranks call it.

        Ends what is in flight (flush()) first. The bytes are a copy, so they can be written while training goes on.
        """
        with _naming("state_dict()"):
            content = self._collected()
        if session_of(self._process_set, "state").rank != 0:
            return {}
        written = io.BytesIO()
        torch.save(to_portable(content), written)
        return {"gradbus": written.getvalue()}

    def _collected(self) -> dict[str, Any]:
        """All of it, on every rank."""
        optimizer = self._optimizer
        content: dict[str, Any] = {"version": _VERSION, "residuals": []}
        if hasattr(optimizer, "flush"):
            optimizer.flush()
        if hasattr(optimizer, "compression_state"):
            residual = optimizer.compression_state()
            holds_any = any(residual.values())
            if any(allgather_object(holds_any, process_set=self._process_set)):
                content["residuals"] = allgather_object(residual, process_set=self._process_set)
        if hasattr(optimizer, "_gradbus"):
            content["outer"] = optimizer.outer_state()
            content["shards"] = optimizer.shard_state()
            content["steps"] = optimizer._gradbus.steps
        states = [getattr(optimizer, "plain_state", optimizer.state_dict)()]
        if hasattr(optimizer, "_gradbus") and optimizer._gradbus.local.names:
            # Each rank has stepped alone, with moments of its own.
            states = allgather_object(states[0], process_set=self._process_set)
        content["optimizers"] = states
        return content

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores it on all ranks, which all call this. The first rank's ``state_dict`` counts.

        The number of ranks may be another one. Residuals are dealt out then: see ``reshard_compression_state``.
        """
        with _naming("load_state_dict()"):
            root = self._process_set.ranks[0]
            saved = broadcast_object(state_dict.get("gradbus"), root, process_set=self._process_set)
        if not isinstance(saved, bytes):
            raise bad_argument(
                "load_state_dict: the state has no bytes under 'gradbus'", "pass what state_dict() returned"
            )
        content = _read(saved)
        optimizer = self._optimizer
        states, rank = content["optimizers"], session_of(self._process_set, "state").rank
        optimizer.load_state_dict(states[rank % len(states)])
        if not hasattr(optimizer, "_gradbus"):
            self._load_residuals(content["residuals"])
            return
        outer = content.get("outer") or {}
        if any(outer.values()):
            optimizer.load_outer_state(outer)
        optimizer.load_shard_state(content.get("shards") or {})  # which gives shards the parameters, too
        self._load_residuals(content["residuals"])
        optimizer._gradbus.steps = content.get("steps", optimizer._gradbus.steps)

    def _load_residuals(self, shares: list[CompressionState]) -> None:
        if not shares:
            return
        session = session_of(self._process_set, "state")
        if len(shares) != session.size:
            op, always_averaged = _op_of(self._optimizer)
            shares = reshard_compression_state(shares, session.size, op, always_averaged)
        self._optimizer.load_compression_state(shares[session.rank])


@contextlib.contextmanager
def _naming(call: str) -> Iterator[None]:
    """An error about a rank that does not come names the call that this rank made, not only a tensor of Gradbus."""
    try:
        yield
    except (MismatchError, TimeoutError) as error:
        head, _, rest = error.what.partition(": ")
        raise type(error)(
            f"{head}: gradbus.state: {call}: {rest} | next: call it on all ranks, between step() and backward()"
        ) from error


def _owner_of_set(optimizer: Any) -> Any:
    """What has ``process_set`` of a distributed optimizer; None for another one."""
    if hasattr(optimizer, "_gradbus"):
        return optimizer._gradbus.settings
    return getattr(optimizer, "_place", None) or getattr(optimizer, "_exchange", None)


def _op_of(optimizer: Any) -> tuple[int, Container[str]]:
    """How gradients are combined, and the parameters for which that does not count: their means are exchanged."""
    if hasattr(optimizer, "_gradbus"):
        return optimizer._gradbus.settings.op, optimizer._gradbus.local.names
    return Average, ()


def _read(saved: bytes) -> dict[str, Any]:
    """The content of the bytes. Nothing in them can run."""
    try:
        content = torch.load(io.BytesIO(saved), map_location="cpu", weights_only=True)
    except Exception as error:
        raise InvalidError(
            f"GB-F118 BAD_CHECKPOINT: load_state_dict: {len(saved)} bytes are no state of Gradbus: {error}"
            " | next: load what state_dict() returned"
        ) from error
    if not isinstance(content, dict) or content.get("version") != _VERSION:
        raise InvalidError(
            "GB-F118 BAD_CHECKPOINT: load_state_dict: the state is of another version of Gradbus"
            " | next: load it with the version that wrote it"
        )
    return from_portable(content)


def state(optimizer: Any) -> TrainingState:
    """All that a DistributedOptimizer keeps: its own state, residuals, outer copies, and what shards keep.

    One ``Stateful`` for a checkpoint, also of a sharded optimizer, OneBitAdam and ZeroOneAdam, and also for another
    number of ranks:

        dcp.save({"model": model.state_dict(), "training": gradbus.state(optimizer)}, checkpoint_id="checkpoint")

    All ranks call state_dict() and load_state_dict(), between step() and backward(). Raises InvalidError for an
    optimizer that is not distributed.
    """
    if not hasattr(_owner_of_set(optimizer), "process_set"):
        raise bad_argument(
            f"state: {type(optimizer).__name__} is not distributed",
            "pass what DistributedOptimizer() returned, or a OneBitAdam",
        )
    return TrainingState(optimizer)

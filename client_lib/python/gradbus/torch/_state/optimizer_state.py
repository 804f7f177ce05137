"""What the optimizers of parameter-server shards remember, read and put back by the ranks.

For commits (gradbus.elastic) and checkpoints. Shards keep it in parts (gradbus.h, gradbus_optimizer_state_parts):
the parameters, vectors of their size, and how many steps each element has made. Rank 0 has it; the
others take part in the rounds.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..._errors import bad_argument
from ..._objects import broadcast_json
from ..._process_sets import ProcessSet, global_process_set

if TYPE_CHECKING:
    from ... import _core
    from .._buckets.gradient_buckets import Bucket
    from .._buckets.slots import Slot

# Parameter name -> {"optimizer": name, "parts": vectors of its shape, then counts of steps}.
ShardState = dict[str, dict[str, Any]]


def remembering(buckets: Iterable[Bucket], only_set: bool = False) -> list[Bucket]:
    """Those whose shards remember vectors besides parameters; ``only_set``: and have got parameters."""
    return [
        bucket
        for bucket in buckets
        if bucket.on_shards is not None
        and (bucket.on_shards.is_set or not only_set)
        and bucket.core.optimizer_state_parts > 2
    ]


def optimizer_of(bucket: Bucket) -> str:
    """That its shards step with."""
    options = (option.partition("=") for option in bucket.spec[-1].split(","))
    return next((value for name, _, value in options if name == "optimizer"), "sgd")


def read_shards(buckets: Sequence[Bucket], session: _core.Session) -> ShardState:
    """On rank 0. Overwrites gradients with zeros. All ranks leave it together."""
    state: ShardState = {}
    for part in range(1, max((bucket.core.optimizer_state_parts for bucket in buckets), default=0)):
        asked = [bucket for bucket in buckets if part < bucket.core.optimizer_state_parts]
        for bucket in asked:
            bucket.start_reading_optimizer_state(part)
        for bucket in asked:
            bucket.finish()
            bucket.copy_back()
            for slot in bucket.slots if session.rank == 0 else ():
                of = state.setdefault(slot.name, {"optimizer": optimizer_of(bucket), "parts": []})
                of["parts"].append(_compact(slot.view))
            bucket.flat.zero_()
    if buckets:
        session.barrier()  # the steps of a fast rank would be in what rank 0 still reads
    return state


def _compact(values: torch.Tensor) -> torch.Tensor:
    """One element where all are the same, as counts of steps mostly are."""
    values = values.detach().to("cpu", copy=True)
    same = values.numel() > 0 and bool((values == values.reshape(-1)[0]).all())
    return values.reshape(-1)[0].clone() if same else values


def agree_on(
    buckets: Sequence[Bucket], state: ShardState, prefix: str, process_set: ProcessSet, rank: int
) -> list[Bucket]:
    """Those that get what rank 0 has, the same on all ranks."""
    if not buckets:
        return []
    found, problem = _fitting(buckets, state) if rank == 0 else ([], "")
    root = 0 if process_set is global_process_set else process_set.ranks[0]
    found, problem = broadcast_json(
        (found, problem), root, f"{prefix}/shard_state", process_set
    )
    if problem:
        raise bad_argument(f"load_shard_state: {problem}", "load the state of the same model")
    return [buckets[index] for index in found]


def _fitting(buckets: Sequence[Bucket], state: ShardState) -> tuple[list[int], str]:
    """Their indexes; and what is wrong with the state, if anything."""
    found: list[int] = []
    for index, bucket in enumerate(buckets):
        mine = optimizer_of(bucket), bucket.core.optimizer_state_parts - 1
        kept = [(slot, state[slot.name]) for slot in bucket.slots if slot.name in state]
        for slot, of in kept:
            for values in of["parts"]:
                if values.dim() > 0 and values.shape != slot.view.shape:
                    shape = tuple(slot.view.shape)
                    return [], f"'{slot.name}' has shape {shape}, its state {tuple(values.shape)}"
        others = [(slot, of) for slot, of in kept if (of["optimizer"], len(of["parts"])) != mine]
        for slot, of in others:
            warnings.warn(
                f"'{slot.name}': shards step with {mine[0]} and {mine[1] - 1} vectors, what is to be put back is "
                f"of {of['optimizer']} and {len(of['parts']) - 1}: what its optimizer remembers begins anew",
                stacklevel=2,
            )
        if kept and not others:
            found.append(index)
    return found, ""


def write_shards(
    buckets: Sequence[Bucket],
    remembering: Sequence[Bucket],
    state: ShardState,
    parameters: dict[Slot, torch.Tensor],
    rank: int,
) -> None:
    """Rank 0's parameters of all buckets, and the state of those ``remembering`` it."""
    parts = max((bucket.core.optimizer_state_parts for bucket in remembering), default=1)
    for part in range(parts):
        told = [b for b in remembering if part < b.core.optimizer_state_parts] if part else buckets
        for bucket in told:
            bucket.flat.fill_(-0.0)  # which added to anything leaves its bits
            for slot in bucket.slots if rank == 0 else ():
                if part == 0:
                    slot.view.copy_(parameters[slot])
                elif slot.name in state:
                    slot.view.copy_(state[slot.name]["parts"][part - 1])
            bucket.start_writing_optimizer_state(part)
        for bucket in told:
            bucket.finish()
            bucket.copy_back()
            bucket.flat.zero_()

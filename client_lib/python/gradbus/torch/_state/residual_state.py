"""The residual state of compression: for checkpoints, and for another number of ranks.

Error feedback keeps on each node what has not been sent yet. Every rank has a share of this state; the
shares of all ranks add up to the state of the job, in units of sums: a mean divides them by the number of ranks.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Protocol

import torch

from ..._errors import bad_argument
from ..._ops import Average, Sum, checked_op

# Part -> parameter name -> values of the parameter's shape.
CompressionState = dict[str, dict[str, torch.Tensor]]


class Bucket(Protocol):
    """Of gradients or of pseudo-gradients."""

    @property
    def elements(self) -> torch.Tensor: ...
    @property
    def compressed(self) -> bool: ...
    @property
    def rescales(self) -> bool: ...
    learning_rate: float | None
    rounds: int
    def element_views(self) -> Sequence[tuple[str, torch.Tensor]]: ...
    def read_residual_state(self, part: int) -> None: ...
    def write_residual_state(self, part: int) -> None: ...
    def continue_warm_up(self, rounds: int) -> None: ...


PARTS = {"residual": 1, "momentum": 2}  # as gradbus_residual_state
# The learning rate by which the residual would have been sent, by parameter: of a rescaled residual, the same on all
# ranks. A state without this part is of an earlier version, and the next step's rate counts as that of its residual.
_RATE = "learning_rate"
# Rounds that were exchanged, by parameter, the same on all ranks: the warm-up of a codec goes on after them.
_ROUNDS = "rounds"
_ALIKE = (_RATE, _ROUNDS)  # on all ranks, and no shares


def read_state(buckets: Iterable[Bucket]) -> CompressionState:
    """This rank's share, of compressed buckets; overwrites their gradients."""
    state: CompressionState = {part: {} for part in PARTS}
    for bucket in buckets:
        for part, number in PARTS.items():
            bucket.read_residual_state(number)
            for name, view in bucket.element_views():
                state[part][name] = view.clone()
        made = torch.tensor(bucket.rounds, device="cpu")
        state.setdefault(_ROUNDS, {}).update({name: made for name, _ in bucket.element_views()})
        if bucket.learning_rate is not None:
            rate = torch.tensor(bucket.learning_rate, dtype=torch.float64, device="cpu")
            state.setdefault(_RATE, {}).update({name: rate for name, _ in bucket.element_views()})
    return state


def write_state(buckets: Iterable[Bucket], state: CompressionState) -> None:
    """Parameters that the state lacks get zeros; overwrites gradients."""
    for bucket in buckets:
        if bucket.rescales:
            rates = [state.get(_RATE, {}).get(name) for name, _ in bucket.element_views()]
            bucket.learning_rate = next((float(rate) for rate in rates if rate is not None), None)
        made = [state.get(_ROUNDS, {}).get(name) for name, _ in bucket.element_views()]
        if bucket.compressed and any(rounds is not None for rounds in made):
            bucket.continue_warm_up(max(int(rounds) for rounds in made if rounds is not None))
        for part, number in PARTS.items():
            shares = state.get(part, {})
            views = bucket.element_views()
            if not bucket.compressed and not any(name in shares for name, _ in views):
                continue
            bucket.elements.zero_()
            for name, view in views:
                if name in shares:
                    view.copy_(shares[name])
            bucket.write_residual_state(number)


def check_state(
    state: CompressionState,
    shapes: dict[str, torch.Size],
    verb: str = "load_compression_state",
    owner: str = "this optimizer",
) -> None:
    """Raises InvalidError naming the first entry that fits no parameter. ``verb``: who refuses it."""
    for part, shares in state.items():
        if part in _ALIKE:
            continue
        if part not in PARTS:
            raise bad_argument(
                f"{verb}: there is no part '{part}'", f"use {', '.join(PARTS)}"
            )
        for name, share in shares.items():
            if name not in shapes:
                raise bad_argument(
                    f"{verb}: {owner} has no float32 parameter '{name}'",
                    "load the state of the same model, with the same named_parameters(); for half precision, with "
                    "the compression that it had, or reduce_dtype=torch.float32",
                )
            if share.shape != shapes[name]:
                raise bad_argument(
                    f"{verb}: '{name}' has shape {tuple(shapes[name])}, its "
                    f"{part} {tuple(share.shape)}",
                    "load the state of the same model",
                )


def reshard_compression_state(
    states: Sequence[CompressionState],
    ranks: int,
    op: int = Average,
    always_averaged: Container[str] = (),
) -> list[CompressionState]:
    """The states of all ranks dealt out to ``ranks`` ranks, so that later steps move parameters by as much.

    ``op``: that of the DistributedOptimizer, OneBitAdam or hook. Shares are parts of sums. A mean is a sum divided by
    the number of ranks, so for Average the shares are multiplied by new / old ranks. For Sum they stay as they are.
    ``always_averaged``: names of parameters for which ``op`` does not count, because they are exchanged themselves.

    Rank r of n old ones goes to new rank r % ranks; the others begin with nothing. Raises InvalidError when there
    are no states or no ranks, and for another op.
    """
    checked_op(op, "reshard_compression_state", (Average, Sum))
    if not states or ranks < 1:
        raise bad_argument(
            f"reshard_compression_state: {len(states)} states for {ranks} ranks",
            "pass the state of every rank and a positive number of ranks",
        )
    dealt: list[CompressionState] = [{part: {} for part in PARTS} for _ in range(ranks)]
    for rank, state in enumerate(states):
        target = dealt[rank % ranks]
        for part, shares in state.items():
            if part in _ALIKE:
                for each in dealt:
                    each.setdefault(part, {}).update(shares)
                continue
            for name, share in shares.items():
                scaled = share * (ranks / len(states) if op == Average or name in always_averaged else 1)
                held = target[part].get(name)
                target[part][name] = scaled if held is None else held + scaled
    return dealt

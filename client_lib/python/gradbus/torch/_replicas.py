"""Whether all ranks have the same parameters, bit for bit.

Training goes wrong silently where they do not: a mean of gradients moves different models alike. So the
first step compares one hash per rank, and every N steps if the user wishes. Only when they differ do
ranks exchange a hash of each parameter, to name the first one.

A parameter is compared where replicas have to be equal: between steps in modes that exchange gradients
for the optimizers of ranks, and otherwise at fences alone. Buffers (batch normalization) are not.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from .. import _core
from .._differentiable import allgather, allreduce
from .._errors import MismatchError
from .._ops import BitOr
from .._process_sets import global_process_set, lowest_rank, session_of
from ._ddp import refuse_ddp

if TYPE_CHECKING:
    from ._buckets.parameter_info import NamedParameter
    from ._exchangers import State

_WORD = 1 << 64


def compare_before_step(state: State) -> None:
    """In the first step, and in every N-th. Raises MismatchError on every rank alike."""
    every = state.settings.check_every
    if state.replicas_compared and not (every and state.steps % every == 0):
        return
    if not state.replicas_compared:
        refuse_ddp(named for named, _ in state.parameters)  # made after the optimizer
    exchange = state.exchange
    try:
        _compare([n for n, _ in state.parameters if exchange.steps_on(n[1])], state)
    except MismatchError as error:
        if error.id != "O906" or not state.settings.warns_of_differences:
            raise
        warnings.warn(str(error), RuntimeWarning, stacklevel=4)
    state.replicas_compared = True


def compare_at_fence(state: State) -> None:
    """After flush(), when all parameters are equal in every mode."""
    if state.settings.check_every:
        _compare([named for named, _ in state.parameters], state)


@torch.no_grad()
def _compare(named: Sequence[NamedParameter], state: State) -> None:
    process_set = state.settings.process_set
    if session_of(process_set, "step").size == 1 or not named:
        return
    hashes = [_hash_of(parameter) for _, parameter in named]
    mine = _core.hash_bytes(torch.tensor(hashes))
    ours = torch.tensor([_signed(mine), ~_signed(mine)])
    name = state.replicas_name
    one, other = allreduce(ours, name, BitOr, process_set=process_set).tolist()
    # All bits that any rank has set, and all that any has not: equal hashes have no bit in common.
    if one == ~other:
        return
    everyone = allgather(torch.tensor(hashes), f"{name}/each", process_set=process_set)
    raise _differ_error(named, everyone.view(-1, len(named)), state)


def _hash_of(parameter: torch.Tensor) -> int:
    elements = parameter.detach().cpu().contiguous()
    if elements.is_complex():
        elements = torch.view_as_real(elements)
    return _signed(_core.hash_bytes(elements.reshape(-1).view(torch.uint8)))


def _signed(number: int) -> int:
    return number - _WORD if number >= _WORD // 2 else number


def _differ_error(
    named: Sequence[NamedParameter], hashes: torch.Tensor, state: State
) -> MismatchError:
    process_set = state.settings.process_set
    differs = (hashes != hashes[0]).any(0)
    first = int(differs.nonzero()[0])
    numbers = (hashes[:, first] != hashes[0, first]).nonzero().flatten().tolist()
    if process_set is not global_process_set:
        numbers = [process_set.ranks[number] for number in numbers]
    others = int(differs.sum()) - 1
    which = f"parameter '{named[first][0]}'{f' (and {others} more)' if others else ''}"
    who = f"ranks {_listed(numbers)} differ" if len(numbers) > 1 else f"rank {numbers[0]} differs"
    root = lowest_rank(process_set)
    call = f"call gradbus.broadcast_parameters(model, root_rank={root})"
    if not state.replicas_compared:
        when, next_step = "", f"{call} before the first step, or pass broadcast=True"
    else:
        when = f", after {state.steps} steps"
        next_step = (
            "look for what ranks do differently (changed parameters, random numbers, processors); "
            f"{call} to go on"
        )
    return MismatchError(
        f"GB-O906 REPLICAS_DIFFER: {which} is not the same on all ranks: {who} from rank {root}{when} "
        f"| next: {next_step}"
    )


def _listed(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:8]))
    return shown if len(numbers) <= 8 else f"{shown} and {len(numbers) - 8} more"

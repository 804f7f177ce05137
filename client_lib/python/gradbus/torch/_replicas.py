"""Whether all ranks have the same parameters, bit for bit, and optimizers that will step them alike.

Training goes wrong silently where they do not: a mean of gradients moves different models alike. So the
first step compares a few hashes per rank, and every N steps if the user wishes. Only when they differ do
ranks exchange a hash of each entry, to name the first one.

A parameter is compared where replicas have to be equal: between steps in modes that exchange gradients
for the optimizers of ranks, and otherwise at fences alone. Buffers (batch normalization) are not.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch

from .._differentiable import allgather, allreduce
from .._errors import MismatchError
from .._ops import BitOr
from .._process_sets import ProcessSet, global_process_set, lowest_rank, session_of
from ._ddp import refuse_ddp
from ._step_facts import hash_of, hash_of_list, options_of, state_text

if TYPE_CHECKING:
    from ._buckets.parameter_info import NamedParameter

_ORDER = 2  # index of the names, shapes and dtypes
_KINDS = 4  # of lists that are compared; as many words, and their complements, travel


class _Settings(Protocol):
    @property
    def process_set(self) -> ProcessSet: ...
    @property
    def check_every(self) -> int: ...
    @property
    def warns_of_differences(self) -> bool: ...
    @property
    def has_own_states(self) -> bool: ...


class _Exchange(Protocol):
    def steps_on(self, parameter: torch.Tensor) -> bool: ...


class Replicated(Protocol):
    """A distributed optimizer whose ranks have replicas."""

    replicas_compared: bool
    steps: int
    parameters: list[tuple[NamedParameter, int]]

    @property
    def loaded(self) -> Mapping[int, int] | None: ...

    @property
    def settings(self) -> _Settings: ...
    @property
    def exchange(self) -> _Exchange: ...
    @property
    def replicas_name(self) -> str: ...
    @property
    def optimizer(self) -> Any: ...


class _Compared(NamedTuple):
    """What all ranks should have alike."""

    entries: list[str]  # for a message: "parameter 'x'"
    hashes: list[int]  # of each
    next_step: str


def compare_before_step(state: Replicated) -> None:
    """In the first step, and in every N-th. Raises MismatchError on every rank alike."""
    every = state.settings.check_every
    if state.replicas_compared and not (every and state.steps % every == 0):
        return
    if not state.replicas_compared:
        refuse_ddp(named for named, _ in state.parameters)  # made after the optimizer
    exchange = state.exchange
    _compare([n for n, _ in state.parameters if exchange.steps_on(n[1])], state, between_steps=True)
    state.replicas_compared = True


def compare_at_fence(state: Replicated) -> None:
    """After flush(), when all parameters are equal in every mode."""
    if state.settings.check_every:
        _compare([named for named, _ in state.parameters], state, between_steps=False)


@torch.no_grad()
def _compare(named: Sequence[NamedParameter], state: Replicated, between_steps: bool) -> None:
    process_set = state.settings.process_set
    if session_of(process_set, "step").size == 1 or not named:
        return
    lists = [_values(named, state)]
    if between_steps:
        lists.append(_options(state))
        if not state.replicas_compared:
            lists.append(_order(named))
            lists += [] if state.settings.has_own_states else [_states(named, state)]
    differ = _differing(lists, state)
    for number in (_ORDER, 1, 0, 3):  # another order and other options make other values, too
        if not differ[number]:
            continue
        error = _differ_error(lists[number], state)
        # Gradients of other shapes, or in another order, have no mean.
        if number == _ORDER or not (between_steps and state.settings.warns_of_differences):
            raise error
        warnings.warn(str(error), RuntimeWarning, stacklevel=5)
        return


@torch.no_grad()
def compare_states(state: Replicated) -> None:
    """What the ranks' optimizers remember. Raises MismatchError on every rank alike."""
    if session_of(state.settings.process_set, "broadcast_optimizer_state").size == 1 or not state.parameters:
        return
    states = _states([named for named, _ in state.parameters], state)
    if _differing([states], state)[0]:
        raise _differ_error(states, state)


def _differing(lists: Sequence[_Compared], state: Replicated) -> list[bool]:
    """Which of the lists are not the same on all ranks."""
    words = [hash_of_list(one.hashes) for one in lists] + [0] * (_KINDS - len(lists))
    ours = torch.tensor([*words, *(~word for word in words)], device="cpu")
    found = allreduce(ours, state.replicas_name, BitOr, process_set=state.settings.process_set).tolist()
    # All bits that any rank has set, and all that any has not: equal hashes have no bit in common.
    return [one != ~other for one, other in zip(found[:_KINDS], found[_KINDS:])]


def _values(named: Sequence[NamedParameter], state: Replicated) -> _Compared:
    call = f"call gradbus.broadcast_parameters(model, root_rank={lowest_rank(state.settings.process_set)})"
    if state.replicas_compared:
        next_step = (
            f"look for what ranks do differently (changed parameters, random numbers, processors); {call} to go on"
        )
    else:
        next_step = f"{call} before the first step, or pass broadcast=True"
    return _Compared([f"parameter '{name}'" for name, _ in named], [hash_of(p) for _, p in named], next_step)


def _order(named: Sequence[NamedParameter]) -> _Compared:
    """Ranks that name the same parameters in another order average the gradient of one with that of another."""
    facts = [f"'{name}' {tuple(p.shape)} {p.dtype}" for name, p in named]
    return _Compared(
        [f"number {number} of the parameters, {fact} on this rank," for number, fact in enumerate(facts)],
        [hash_of(fact) for fact in facts],
        "give the parameters in the same order and with the same names on all ranks: no order of a set or a folder",
    )


def _options(state: Replicated) -> _Compared:
    options = options_of(state.optimizer)
    return _Compared(
        [f"{what}, {value} on this rank," for what, value in options],
        [hash_of(f"{what} {value}") for what, value in options],
        "make the same optimizer on all ranks; feed a scheduler that looks at a metric the mean over all ranks "
        "(gradbus.allreduce)",
    )


def _states(named: Sequence[NamedParameter], state: Replicated) -> _Compared:
    entries = [f"the optimizer's state of parameter '{name}'" for name, _ in named]
    if state.loaded is not None:
        hashes = [state.loaded.get(id(p), 0) for _, p in named]
        return _Compared(entries, hashes, "call load_state_dict() with the same state on all ranks")
    states = state.optimizer.__dict__["state"]
    root = lowest_rank(state.settings.process_set)
    return _Compared(
        entries,
        [hash_of(state_text(states[p])) if p in states else 0 for _, p in named],
        f"call gradbus.broadcast_optimizer_state(optimizer, root_rank={root}) after the checkpoint was loaded, or "
        "load it on every rank",
    )


def _differ_error(compared: _Compared, state: Replicated) -> MismatchError:
    process_set = state.settings.process_set
    name = f"{state.replicas_name}/each"
    mine = torch.tensor(compared.hashes, device="cpu")
    everyone = allgather(mine, name, process_set=process_set)
    root = lowest_rank(process_set)
    size = session_of(process_set, "step").size
    when = f", after {state.steps} steps" if state.replicas_compared else ""
    if everyone.numel() != size * mine.numel():
        what = "the optimizer (its class, groups and options) is not the same on all ranks"
        return MismatchError(f"GB-O906 REPLICAS_DIFFER: {what}{when} | next: {compared.next_step}")
    hashes = everyone.view(size, -1)
    differs = (hashes != hashes[0]).any(0)
    first = int(differs.nonzero()[0])
    numbers = (hashes[:, first] != hashes[0, first]).nonzero().flatten().tolist()
    if process_set is not global_process_set:
        numbers = [process_set.ranks[number] for number in numbers]
    others = int(differs.sum()) - 1
    which = f"{compared.entries[first]}{f' (and {others} more)' if others else ''}"
    who = f"ranks {_listed(numbers)} differ" if len(numbers) > 1 else f"rank {numbers[0]} differs"
    return MismatchError(
        f"GB-O906 REPLICAS_DIFFER: {which} is not the same on all ranks: {who} from rank {root}{when} "
        f"| next: {compared.next_step}"
    )


def _listed(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:8]))
    return shown if len(numbers) <= 8 else f"{shown} and {len(numbers) - 8} more"

"""The optimizer's state of parameters that leave a mode in which ranks step on their own.

There each rank has momenta, and maybe a number of steps, of its own. Ranks that step on the same gradients
need the same state, or their replicas drift apart. So at the change of mode the ranks make it equal.

What has the parameter's shape, as momenta and second moments do, becomes the mean over the ranks: the
parameters are a mean of the replicas, too. Counts of steps become the lowest rank's. A state that holds
anything else (quantized moments, factors, LBFGS's lists) may have no mean, so it is the lowest rank's as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch

from ..._differentiable import allreduce
from ..._layout import joined_batches
from ..._objects import allgather_object
from ..._process_sets import ProcessSet, lowest_rank, session_of
from .._broadcast import NamedTensors, broadcast_optimizer_state, bytes_of, plain_name
from .._buckets.parameter_info import NamedParameter
from .._buckets.retire import retire_names

_COUNT = "step"  # torch's optimizers call it so; of a parameter with one element it has the same shape
_PLAIN = (bool, int, float, complex, str, type(None))

_Facts = list[tuple[str, str]]  # key and kind of each entry of a state


@torch.no_grad()
def make_equal(optimizer: Any, named: Sequence[NamedParameter], process_set: ProcessSet, steps: int) -> int:
    """The state of these parameters is the same on all ranks afterwards, bit for bit. Returns the lowest rank's steps.

    Every rank calls it with the same parameters and the ``steps`` that it has made. Raises PeerLostError,
    TimeoutError.
    """
    if not named or session_of(process_set, "flush").size == 1:
        return steps
    facts = [_facts(optimizer.state.get(parameter, {}), parameter) for _, parameter in named]
    everyone = allgather_object((steps, facts), process_set=process_set)
    alike = {
        parameter
        for number, (_, parameter) in enumerate(named)
        if facts[number] is not None and all(theirs[number] == facts[number] for _, theirs in everyone)
    }
    _take_means([pair for pair in named if pair[1] in alike], optimizer, process_set)
    _take_rest([parameter for _, parameter in named], alike, optimizer, process_set)
    return int(everyone[0][0])


def _has_mean(key: str, value: Any, parameter: torch.Tensor) -> bool:
    return (
        key != _COUNT
        and isinstance(value, torch.Tensor)
        and value.layout is torch.strided
        and (value.is_floating_point() or value.is_complex())
        and value.shape == parameter.shape
    )


def _facts(state: dict[str, Any], parameter: torch.Tensor) -> _Facts | None:
    """What ranks must have alike for a mean. None: this state may have none."""
    facts = []
    for key in sorted(state, key=str):
        value = state[key]
        if _has_mean(key, value, parameter):
            facts.append((str(key), str(value.dtype)))
        elif isinstance(value, _PLAIN) or (isinstance(value, torch.Tensor) and value.numel() == 1):
            facts.append((str(key), ""))
        else:
            return None
    return facts


def _take_means(named: Sequence[NamedParameter], optimizer: Any, process_set: ProcessSet) -> None:
    tensors: NamedTensors = [
        (f"{name}/{key}", optimizer.state[parameter][key])
        for name, parameter in named
        for key in sorted(optimizer.state.get(parameter, {}), key=str)
        if _has_mean(key, optimizer.state[parameter][key], parameter)
    ]
    for number, batch in enumerate(joined_batches(tensors, bytes_of)):
        pieces = [tensor.reshape(-1) for _, tensor in batch]
        if len({piece.device for piece in pieces}) > 1:
            pieces = [piece.cpu() for piece in pieces]
        name = f"own_states/{number}"
        mean = allreduce(torch.cat(pieces), name, process_set=process_set)
        retire_names([name], process_set)
        for (_, tensor), piece in zip(batch, torch.split(mean, [piece.numel() for piece in pieces])):
            tensor.copy_(piece.view(tensor.shape))


class _Rest:
    """A part of an optimizer's state, for broadcast_optimizer_state()."""

    def __init__(self, optimizer: Any, state: dict[torch.nn.Parameter, dict[str, Any]]) -> None:
        self._plain_name = plain_name(optimizer)
        self.param_groups = [{"params": list(state)}]
        self.state = state


def _take_rest(
    parameters: Sequence[torch.nn.Parameter], alike: set[torch.nn.Parameter], optimizer: Any, process_set: ProcessSet
) -> None:
    """What has no mean."""
    states = {parameter: optimizer.state.get(parameter, {}) for parameter in parameters}
    rest = _Rest(
        optimizer,
        {
            p: {key: value for key, value in state.items() if p not in alike or not _has_mean(key, value, p)}
            for p, state in states.items()
        },
    )
    broadcast_optimizer_state(cast(Any, rest), lowest_rank(process_set), process_set)
    for parameter, values in rest.state.items():
        if parameter in alike:
            states[parameter].update(values)
        elif values:
            optimizer.state[parameter] = values
        else:
            optimizer.state.pop(parameter, None)

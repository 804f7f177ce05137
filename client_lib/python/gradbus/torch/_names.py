"""The names of an optimizer's parameters, from what the user gives for ``named_parameters``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from .._errors import InvalidError, bad_argument
from ._buckets.parameter_info import NamedParameter


def parameters_of(optimizer: Any) -> list[torch.Tensor]:
    """Of all groups."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def numbered(group: dict[str, Any], number: int) -> list[NamedParameter]:
    """The trainable parameters of a group, without names of their own."""
    return [
        (f"group{number}.{index}", parameter)
        for index, parameter in enumerate(group["params"])
        if parameter.requires_grad
    ]


def _named(
    optimizer: torch.optim.Optimizer, names: Iterable[tuple[str, Any]]
) -> list[NamedParameter]:
    """The optimizer's trainable parameters in the order of `names`."""
    ours = {id(p): p for p in parameters_of(optimizer) if p.requires_grad}
    named: dict[str, torch.nn.Parameter] = {}
    for name, parameter in _checked_names(names):
        if ours.pop(id(parameter), None) is None:
            continue  # frozen, of another optimizer, or shared and already named
        if name in named:
            raise bad_argument(
                f"DistributedOptimizer: two parameters are named '{name}'",
                "give each model its own prefix",
            )
        named[name] = parameter
    if ours:
        shapes = ", ".join(str(tuple(p.shape)) for p in ours.values())
        raise bad_argument(
            f"DistributedOptimizer: {len(ours)} parameters have no name; their shapes: {shapes}",
            "pass the named_parameters() of the whole model",
        )
    return list(named.items())


def _checked_names(names: Any) -> Iterator[tuple[str, torch.nn.Parameter]]:
    try:
        pairs = iter(names.items() if isinstance(names, dict) else names)
    except TypeError:
        raise _names_error(f"a {type(names).__name__}") from None
    for pair in pairs:
        if isinstance(pair, torch.Tensor):
            raise _names_error("parameters without names")
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str)):
            raise _names_error(f"a {type(pair).__name__} in the place of a pair of name and parameter")
        yield pair


def _names_error(got: str) -> InvalidError:
    return bad_argument(
        f"DistributedOptimizer: named_parameters has {got}", "pass model.named_parameters()"
    )


def regrouped(
    optimizer: torch.optim.Optimizer, parameters: Iterable[tuple[NamedParameter, int]]
) -> list[tuple[NamedParameter, int]]:
    """Parameters with the numbers of their groups, which a script may have edited; 0 where it has removed one."""
    group_of = {
        id(p): number for number, group in enumerate(optimizer.param_groups) for p in group["params"]
    }
    return [(pair, group_of.get(id(pair[1]), 0)) for pair, _ in parameters]


def all_named(
    optimizer: torch.optim.Optimizer, names: Iterable[tuple[str, Any]] | None
) -> list[NamedParameter]:
    """The trainable parameters. Raises InvalidError when some have no name or shape, or one name twice."""
    if names is not None:
        named = _named(optimizer, names)
    else:
        groups = enumerate(optimizer.param_groups)
        named = [pair for number, group in groups for pair in numbered(group, number)]
    for name, parameter in named:
        if torch.nn.parameter.is_lazy(parameter):
            raise bad_argument(
                f"DistributedOptimizer: parameter '{name}' of a lazy module has no shape yet",
                "call the model on one batch first",
            )
    return named

"""Whose states the ones in a state_dict() are. Main thread."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from ..._errors import bad_argument
from .pieces import State


def _ids(groups: Sequence[dict[str, Any]]) -> list[Any]:
    return list(chain.from_iterable(group["params"] for group in groups))


def refuse_states_of_none(state_dict: dict[str, Any]) -> None:
    """Raises InvalidError for a state whose id is in none of the groups: it would be lost."""
    known = set(_ids(state_dict["param_groups"]))
    lost = [one for one in state_dict["state"] if one not in known]
    if lost:
        raise bad_argument(
            f"load_state_dict: the state of {lost[0]!r} (and {len(lost) - 1} more) is of no parameter in the groups",
            "give the 'state' and the 'param_groups' of one state_dict(); a sharded optimizer keeps no other states",
        )


def states_of(groups: Sequence[dict[str, Any]], state_dict: dict[str, Any]) -> dict[int, State]:
    """By id of the parameter. Saved ids may be numbers or names: as in torch, their order tells whose they are."""
    saved, states = _ids(state_dict["param_groups"]), state_dict["state"]
    return {id(parameter): states[one] for one, parameter in zip(saved, _ids(groups)) if one in states}

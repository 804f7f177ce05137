"""Hooks of state_dict() and load_state_dict() of a sharded optimizer: they see the whole state, not this rank's shares.

torch runs hooks around its own methods, which get no states from the sharded ones. So the sharded ones run them, and
torch's find none. torch has them from 2.1 on. Main thread.
"""

from __future__ import annotations

import contextlib
from typing import Any

from .step_hooks import aside

_SAVE = ("_optimizer_state_dict_pre_hooks", "_optimizer_state_dict_post_hooks")
_LOAD = ("_optimizer_load_state_dict_pre_hooks", "_optimizer_load_state_dict_post_hooks")


class StateHooks:
    """Those of one optimizer."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer

    def before_save(self) -> None:
        """A hook may prepare the optimizer."""
        self._run(_SAVE[0])

    def after_save(self, whole: dict[str, Any]) -> dict[str, Any]:
        """The state as hooks change it."""
        return self._changed(_SAVE[1], whole)

    def before_load(self, whole: dict[str, Any]) -> dict[str, Any]:
        """The state as hooks change it."""
        return self._changed(_LOAD[0], whole)

    def after_load(self) -> None:
        """This rank has its share."""
        self._run(_LOAD[1])

    def aside(self) -> contextlib.AbstractContextManager[None]:
        """In this block torch finds none."""
        return aside((self._optimizer.__dict__, place) for place in _SAVE + _LOAD)

    def _run(self, place: str) -> None:
        for hook in self._in(place):
            hook(self._optimizer)

    def _changed(self, place: str, whole: dict[str, Any]) -> dict[str, Any]:
        for hook in self._in(place):
            result = hook(self._optimizer, whole)
            whole = whole if result is None else result
        return whole

    def _in(self, place: str) -> list[Any]:
        return list(self._optimizer.__dict__.get(place, {}).values())

"""Who reads an optimizer's ``state`` sees the last step, also where it was left to the next forward pass.

Torch reads ``state`` for each parameter of a step. So it is a plain attribute until a step is left for the first time.
"""

from __future__ import annotations

import functools
from typing import Any


class SettlesBeforeUse:
    """In front of the class of a distributed optimizer. Parameters whose step was left are stepped first."""

    @property
    def state(self) -> Any:
        """The wrapped optimizer's."""
        own = self.__dict__
        gradbus = own.get("_gradbus")
        if gradbus is not None and gradbus.exchange.deferred.step_part is not None:
            gradbus.exchange.settle()
        return own["state"]

    @state.setter
    def state(self, value: Any) -> None:
        _ = self.state  # a step that was put off is made on what was there
        self.__dict__["state"] = value

    def register_step_pre_hook(self, hook: Any) -> Any:
        """Of steps from now on."""
        _ = self.state
        return super().register_step_pre_hook(hook)  # type: ignore[misc]

    def register_step_post_hook(self, hook: Any) -> Any:
        """Of steps from now on."""
        _ = self.state
        return super().register_step_post_hook(hook)  # type: ignore[misc]

    def __setstate__(self, state: Any) -> None:
        _ = self.state
        super().__setstate__(state)  # type: ignore[misc]


def settle_before_use(optimizer: Any) -> None:
    """From here on, for ever."""
    if not isinstance(optimizer, SettlesBeforeUse):
        optimizer.__class__ = _settling(type(optimizer))


@functools.cache
def _settling(distributed: type) -> type:
    return type(distributed.__name__, (SettlesBeforeUse, distributed), {"__module__": distributed.__module__})

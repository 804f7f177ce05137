"""Modes in which parameter-server shards hold the parameters and step: ps:async, ps:ssp, ps:quorum."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .. import _core

PS_SYNC, PS_QUORUM = 6, 9  # as gradbus_mode_kind: from PS_SYNC + 1 on shards hold parameters

_OF_OPTIMIZER = {
    "optimizer", "momentum", "dampening", "nesterov", "weight_decay", "beta1", "beta2", "eps",
}  # fmt: skip


def holds_parameters(mode: _core.Mode) -> bool:
    """Shards do."""
    return PS_SYNC < mode.kind <= PS_QUORUM


def said_in(text: str) -> set[str]:
    """The names of the options in the text of a mode."""
    return {option.partition("=")[0] for option in text.split(",")[1:]}


def says_optimizer(text: str) -> bool:
    """The text of a mode says what shards do with a gradient."""
    return bool(said_in(text) & _OF_OPTIMIZER)

"""Kinds of sync modes, and what follows from them for a front end."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .. import _core


class ModeKind(enum.IntEnum):
    """Numbers of gradbus_mode_kind."""

    SYNC = 1
    DELAYED = 2
    AVERAGING = 3
    LOCALSGD = 4
    DILOCO = 5
    PS_SYNC = 6
    PS_ASYNC = 7
    PS_SSP = 8
    PS_QUORUM = 9
    GOSSIP = 10


_LOCAL = (ModeKind.AVERAGING, ModeKind.LOCALSGD, ModeKind.DILOCO, ModeKind.GOSSIP)
_ON_SHARDS = (ModeKind.PS_ASYNC, ModeKind.PS_SSP, ModeKind.PS_QUORUM)
_OF_OPTIMIZER = {
    "optimizer", "momentum", "dampening", "nesterov", "weight_decay", "beta1", "beta2", "eps",
}  # fmt: skip


def is_local(mode: _core.Mode) -> bool:
    """Ranks step on their own gradients, and exchange parameters."""
    return mode.kind in _LOCAL


def is_on_shards(mode: _core.Mode) -> bool:
    """Parameter-server shards have the parameters, and step."""
    return mode.kind in _ON_SHARDS


def said_in(text: str) -> set[str]:
    """The names of the options in the text of a mode."""
    return {option.partition("=")[0] for option in text.split(",")[1:]}


def says_optimizer(text: str) -> bool:
    """The text of a mode says what shards do with a gradient."""
    return bool(said_in(text) & _OF_OPTIMIZER)

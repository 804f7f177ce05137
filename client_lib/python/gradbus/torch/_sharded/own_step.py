"""The step of this rank: an optimizer's groups have its shares in the place of parameters. Main thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .pieces import Piece


class OwnStep:
    """A block in which groups and ``.grad`` are those of this rank's shares.

    A share is in the group of its parameter, whatever the group was when shares were made. Parameters that other ranks
    step on have no gradient in it.
    """

    def __init__(self, groups: Sequence[dict[str, Any]], pieces: Sequence[Piece]) -> None:
        self._pieces = pieces
        self._groups = [(group, group["params"]) for group in groups]
        self._gradients: list[tuple[torch.Tensor, torch.Tensor | None]] = []

    def __enter__(self) -> None:
        share_of: dict[int, torch.Tensor] = {}
        for piece in self._pieces:
            self._gradients += [(parameter, parameter.grad) for parameter in piece.parameters]
            for parameter in piece.parameters:
                parameter.grad = None
            for share, cut, gradient in zip(piece.shares, piece.cuts, piece.gradients):
                share_of[id(piece.parameters[cut.parameter])] = share
                share.grad = gradient
        for group, parameters in self._groups:
            group["params"] = [share_of[id(parameter)] for parameter in parameters if id(parameter) in share_of]

    def __exit__(self, *_: object) -> None:
        for group, parameters in self._groups:
            group["params"] = parameters
        for piece in self._pieces:
            for share in piece.shares:
                share.grad = None
        for parameter, gradient in self._gradients:
            parameter.grad = gradient

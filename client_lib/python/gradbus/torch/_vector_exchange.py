"""Means over all ranks of a vector for each parameter, in registered tensors. For optimizers that exchange themselves.

Main thread.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

import torch

from .._objects import compare_lists
from .._process_sets import ProcessSet, session_of
from ._buckets.detach import detach_before_close
from ._comm_hook.exchange import HookedBucket, Piece
from ._numbers import keep_number, next_number
from ._state.residual_state import PARTS, CompressionState, check_state, read_state, write_state

Vectors = Sequence[torch.Tensor]


class VectorExchange:
    """Of one optimizer. ``codecs``: by what is exchanged, its codec; "none": dense.

    All ranks make it over the same parameters, or MismatchError is raised. As elsewhere, small tensors and biases
    stay dense. Another session registers anew, without residuals.
    """

    def __init__(
        self, owner: str, parameters: Sequence[torch.nn.Parameter], codecs: Mapping[str, str], process_set: ProcessSet
    ) -> None:
        self._owner = owner
        self._parameters = list(parameters)
        self._codecs = dict(codecs)
        self.process_set = process_set
        self._number = next_number(process_set)
        self._buckets: dict[str, HookedBucket] = {}
        self._holds_residuals = False  # the same on all ranks
        self._register()

    def _register(self) -> None:
        session = session_of(self.process_set, self._owner)
        keep_number(self.process_set, self._number)
        detach_before_close(self, self.process_set)
        shapes = [f"{str(p.dtype).removeprefix('torch.')}{list(p.shape)}" for p in self._parameters]
        compare_lists(shapes, "parameter", f"{self._owner}{self._number}", self.process_set)
        for what, codec in self._codecs.items():
            prefix = f"{self._owner}{self._number}/{what}"
            self._buckets[what] = HookedBucket(list(self._named(what)), codec, session, prefix)

    def _named(self, what: str) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """As the residual state names them."""
        return ((f"{what}/{number}", parameter) for number, parameter in enumerate(self._parameters))

    def mean(self, what: str, vectors: Vectors) -> None:
        """Makes each of them the mean over all ranks."""
        if not self._buckets:
            self._register()
        pieces = self._buckets[what].pieces
        by_name = {name: vector for (name, _), vector in zip(self._named(what), vectors, strict=True)}
        for piece in pieces:
            for name, view in piece.element_views():
                view.copy_(by_name[name])
            piece.hand_over()
        for piece in pieces:
            piece.finish()
            piece.copy_back()
            for name, view in piece.element_views():
                by_name[name].copy_(view)
        if session_of(self.process_set, self._owner).cross_size > 1:
            self._holds_residuals |= any(piece.compressed for piece in pieces)

    @property
    def rank(self) -> int:
        """In the process set."""
        return session_of(self.process_set, self._owner).rank

    def compression_state(self) -> CompressionState:
        """This rank's share. All ranks call it, if anything was compressed."""
        return read_state(self._compressed()) if self._holds_residuals else {part: {} for part in PARTS}

    def load_compression_state(self, state: CompressionState, of_others: bool = False) -> None:
        """Replaces this rank's share. All ranks call it. ``of_others``: it is another rank's; this one has nothing."""
        shapes = {name: p.shape for what in self._codecs for name, p in self._named(what)}
        check_state(state, shapes)
        if not self._holds_residuals and not any(state.values()):
            return
        if not self._buckets:
            self._register()
        self._holds_residuals = True
        write_state(self._compressed(), {} if of_others else state)

    def _compressed(self) -> Iterator[Piece]:
        return (piece for bucket in self._buckets.values() for piece in bucket.pieces if piece.compressed)

    def detach(self, process_goes_on: bool) -> None:
        """The session ends, and what agents remember with it."""
        del process_goes_on
        self._buckets.clear()
        self._holds_residuals = False

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            for bucket in self._buckets.values():
                bucket.close()

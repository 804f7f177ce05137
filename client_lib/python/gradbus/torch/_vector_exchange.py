"""Means over all ranks of a vector for each parameter, in registered tensors. For optimizers that exchange themselves.

Main thread.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

import torch

from .._errors import BusyError
from .._objects import compare_lists
from .._process_sets import ProcessSet, session_of
from ._buckets.detach import detach_before_close
from ._buckets.parameter_info import shaped_as
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
        self._missed = False  # something has begun and not ended: memory may be in flight, and the step half done
        self._register()

    def _register(self) -> None:
        session = session_of(self.process_set, self._owner)
        keep_number(self.process_set, self._number)
        detach_before_close(self, self.process_set)
        shapes = [f"{str(p.dtype).removeprefix('torch.')}{list(p.shape)}" for p in self._parameters]
        compare_lists(shapes, "parameter", f"{self._owner}{self._number}", self.process_set)
        for what, codec in self._codecs.items():
            prefix = f"{self._owner}{self._number}/{what}"
            # In logical order, as a rank's parameter may lie in memory otherwise than that of another (channels_last).
            self._buckets[what] = HookedBucket(list(self._named(what)), codec, session, prefix, shaped_as)

    def _named(self, what: str) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """As the residual state names them."""
        return ((f"{what}/{number}", parameter) for number, parameter in enumerate(self._parameters))

    def mean(self, what: str, vectors: Vectors) -> None:
        """Makes each of them the mean over all ranks. After it has failed, refuse_after_failure() does."""
        self.refuse_after_failure("step()")
        self._missed = True
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
        self._missed = False

    def refuse_after_failure(self, verb: str) -> None:
        """Raises BusyError once an exchange has failed: the next would overwrite what other ranks still read."""
        if self._missed:
            raise BusyError(
                f"GB-O905 IN_FLIGHT: {self._owner}: {verb} is called after an exchange that did not end on this rank"
                " | next: make a new optimizer and load a checkpoint, on all ranks"
            )

    def refuse_in_flight(self, verb: str) -> None:
        """As refuse_after_failure(), unless the session of that exchange has ended, and its memory with it."""
        if self._buckets:
            self.refuse_after_failure(verb)

    def begin_anew(self) -> None:
        """A checkpoint has replaced what a failed exchange left. Only after refuse_in_flight()."""
        self._missed = False

    @property
    def rank(self) -> int:
        """In the process set."""
        return session_of(self.process_set, self._owner).rank

    def compression_state(self) -> CompressionState:
        """This rank's share. All ranks call it, if anything was compressed."""
        self.refuse_after_failure("compression_state()")
        if not self._holds_residuals:
            return {part: {} for part in PARTS}
        self._missed = True
        state = read_state(self._compressed())
        self._missed = False
        return state

    def load_compression_state(self, state: CompressionState, of_others: bool = False) -> None:
        """Replaces this rank's share. All ranks call it. ``of_others``: it is another rank's; this one has nothing."""
        self.refuse_after_failure("load_compression_state()")
        shapes = {name: p.shape for what in self._codecs for name, p in self._named(what)}
        check_state(state, shapes)
        if not self._holds_residuals and not any(state.values()):
            return
        if not self._buckets:
            self._register()
        self._holds_residuals = True
        self._missed = True
        write_state(self._compressed(), {} if of_others else state)
        self._missed = False

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

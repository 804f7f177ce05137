"""The registered tensors of one bucket of DDP, and its rounds.

A round begins on the thread of backward, and a completer's thread ends it. So one thread at a time works on them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ... import _core
from ..._layout import DTYPES, BucketPlan, ParameterInfo, plan_buckets
from ..._ops import Average
from .._buckets.parameter_info import NamedParameter, in_memory_order, info_of, real_count, with_compression
from .._buckets.registered import Registered
from .._buckets.retire import retire
from .._completer import Completer
from .._gpu.staging import is_staged, try_devices, uuid_for_rank_buffers

_completer = Completer("gradbus-hooks")

# The elements of a parameter, as a view in its shape. All ranks must lay them out alike.
Layout = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Piece(Registered):
    """The parameters of a bucket that have one compression."""

    def __init__(
        self, core: _core.Bucket, plan: BucketPlan, named: Sequence[NamedParameter], starts: Sequence[int],
        timeout_ms: int, layout: Layout,
    ) -> None:  # fmt: skip
        """``starts``: by parameter, where it begins in the bucket."""
        dtype = getattr(torch, plan.gradient_dtype) if plan.gradient_dtype else None
        super().__init__(core, named[plan.slots[0].index][1], timeout_ms, dtype)
        self.compressed = plan.compression != "none"
        self._layout = layout
        self._parameters = [(*named[slot.index], slot.offset, slot.count) for slot in plan.slots]
        self._runs = _joined([(slot.offset, starts[slot.index], slot.count) for slot in plan.slots])

    def start(self, reals: torch.Tensor) -> None:
        """Begins a round with what is in the bucket."""
        for mine, theirs, count in self._runs:
            self.flat[mine : mine + count].copy_(reals[theirs : theirs + count])
        self.hand_over()

    def take(self, reals: torch.Tensor) -> None:
        """Waits, and puts the mean into the bucket."""
        self.finish()
        self.copy_back()
        for mine, theirs, count in self._runs:
            reals[theirs : theirs + count].copy_(self.flat[mine : mine + count])

    def element_views(self) -> list[tuple[str, torch.Tensor]]:
        """By parameter: its part of elements, in its shape."""
        elements = self.elements
        return [
            (name, self._layout(parameter, elements[offset : offset + count]))
            for name, parameter, offset, count in self._parameters
        ]


def _joined(runs: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Runs that follow each other on both sides are one."""
    joined: list[tuple[int, int, int]] = []
    for mine, theirs, count in runs:
        if joined and (joined[-1][0] + joined[-1][2], joined[-1][1] + joined[-1][2]) == (mine, theirs):
            joined[-1] = (*joined[-1][:2], joined[-1][2] + count)
        else:
            joined.append((mine, theirs, count))
    return joined


class HookedBucket:
    """Of one bucket."""

    def __init__(
        self,
        named: Sequence[NamedParameter],
        compression: str | None,
        session: _core.Session,
        prefix: str,
        layout: Layout = in_memory_order,
    ) -> None:
        """Registers its tensors; every rank must make the same ones. ``layout``: DDP's buckets are in memory order."""
        self.named = list(named)
        infos = [with_compression(compression, session, info_of(*pair), pair[1], converts=True) for pair in named]
        self.pieces = _register(self.named, infos, session, prefix, layout)

    def start(self, buffer: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
        """Begins a round; the future has the bucket with the mean of all ranks."""
        return _Round(self.pieces, buffer).start()

    def close(self) -> None:
        """No round comes any more."""
        for piece in self.pieces:
            piece.storage.close()
        retire(piece.core for piece in self.pieces)


def _register(
    named: Sequence[NamedParameter], infos: Sequence[ParameterInfo], session: _core.Session, prefix: str, layout: Layout
) -> list[Piece]:
    # DDP has chosen what travels together, so one kind is one tensor, in the order of the bucket.
    order, together = range(len(infos)), [0] * len(infos)
    plans = [p for p in plan_buckets(infos, 1, prefix, order, together) if p.count]
    firsts = [named[plan.slots[0].index][1] for plan in plans]
    specs = [
        (plan.name, plan.count, DTYPES[plan.dtype][1], Average, plan.compression, plan.columns, "sync")
        for plan in plans
    ]
    devices = [uuid_for_rank_buffers(first, plan.compression, "sync") for first, plan in zip(firsts, plans)]
    try_devices(session, devices)
    starts, end = [], 0
    for _, parameter in named:
        starts.append(end)
        end += real_count(parameter)
    cores = session.register_buckets(specs, devices)
    return [Piece(core, plan, named, starts, session.op_timeout_ms, layout) for core, plan in zip(cores, plans)]


class _Round:
    """One exchange of a bucket. The future holds it until the end."""

    def __init__(self, pieces: Sequence[Piece], buffer: torch.Tensor) -> None:
        self._pieces = pieces
        self._buffer = buffer
        reals = torch.view_as_real(buffer) if buffer.is_complex() else buffer
        self._reals = reals.detach().view(-1)
        self._error: BaseException | None = None
        self._trigger = _new_future(buffer)

    def start(self) -> torch.futures.Future[torch.Tensor]:
        """Hands over all pieces."""
        # An error that is raised in a callback is one for C++, too; set_exception() is seen by Python alone.
        future = self._trigger.then(lambda _: self._result())
        for piece in self._pieces:
            piece.start(self._reals)
        _completer.add(self)
        return future

    @torch.no_grad()
    def complete_for_future(self) -> None:
        """Takes the results; the first error becomes that of the future."""
        for piece in self._pieces:
            try:
                piece.take(self._reals)
            except BaseException as error:  # noqa: BLE001: backward() gets it
                self._error = self._error or error
        if is_staged(self._buffer) and self._error is None:
            torch.cuda.current_stream(self._buffer.device).synchronize()
        self._trigger.set_result(None)

    def _result(self) -> torch.Tensor:
        if self._error is not None:
            raise self._error.with_traceback(None)  # torch makes text of it
        return self._buffer


def _new_future(buffer: torch.Tensor) -> torch.futures.Future[Any]:
    if is_staged(buffer):
        return torch.futures.Future(devices=[buffer.device])
    return torch.futures.Future()

"""How operations of a process group begin: what reductions and movements share. Any thread."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import torch

from ... import _core
from ..._errors import GradbusError, bad_argument
from ..._parts import Collective
from .._completer import Completer
from ._messages import for_torch
from ._progress import progress
from ._rendezvous import Members, milliseconds
from ._wire import (
    NOTHING,
    Part,
    check_same_kind,
    elements_on_wire,
    host_input,
    host_output,
    name_of_any_size,
    put_back_counted,
    wire_of,
)
from ._work import Work

Tensors = Sequence[torch.Tensor]
_completer = Completer("gradbus-futures")


class Starting:
    """How works begin. ``members`` has the session."""

    members: Members
    completer = _completer
    sequence = 0  # of operations

    def start(
        self, parts: Sequence[Part], outputs: Tensors, timeout: datetime.timedelta | None, earlier: Sequence[Work] = ()
    ) -> Work:
        """One work for all parts, which ends after ``earlier``."""
        self.members.check_process()
        self.sequence += 1
        timeout_ms = milliseconds(timeout, self.members.timeout_ms)
        busy = [part for part in parts if part.request is not None]
        if not busy:
            return Work(self.members, None, None, outputs, timeout_ms)
        requests = [part.request for part in busy if part.request is not None]
        try:
            operation = self.members.session.start(requests, True)
        except GradbusError as error:
            raise for_torch(error, self.members.global_ranks) from None

        def finish() -> None:
            for index, part in enumerate(busy):
                if part.finish is not None:
                    part.finish(operation, index)

        return Work(self.members, operation, finish, outputs, timeout_ms, _completer, earlier)

    def unsettled(self) -> list[Work]:
        """Collective operations of the group that are in flight, or whose error nobody has seen."""
        works = [work for work in progress.in_flight() if isinstance(work, Work) and work.is_of(self.members)]
        return [*self.members.unseen, *works]

    def one(self, tensors: Any, verb: str) -> torch.Tensor:
        """The tensor of a list of one, or itself."""
        if isinstance(tensors, torch.Tensor):
            return tensors
        if len(tensors) != 1:
            raise bad_argument(f"{verb}: {len(tensors)} tensors", "pass a list of one tensor")
        return tensors[0]  # type: ignore[no-any-return]

    def root(self, root: int, verb: str) -> int:
        if 0 <= root < self.members.size:
            return root
        raise bad_argument(f"{verb}: root {root}", f"pass a rank of the group, below {self.members.size}")

    def check_count(self, tensors: Sequence[Any], verb: str) -> None:
        if len(tensors) != self.members.size:
            raise bad_argument(
                f"{verb}: a list of {len(tensors)} tensors for {self.members.size} ranks", "pass one for each rank"
            )

    def check_received(self, got: Sequence[int], expected: Sequence[int]) -> None:
        """InvalidError unless these are the elements from each rank."""
        for rank, (count, wanted) in enumerate(zip(got, expected)):
            if count != wanted:
                raise bad_argument(
                    f"{self.members.name_of(rank)} sent {count} elements, the output for it has {wanted}",
                    "pass outputs of the sizes that the other ranks send",
                )

    def allgather_part(self, output: torch.Tensor, source: torch.Tensor, verb: str = "allgather") -> Part:
        check_same_kind([source], output.dtype, verb)
        if output.numel() != source.numel() * self.members.size:
            raise bad_argument(
                f"{verb}: {source.numel()} elements in, {output.numel()} out, {self.members.size} ranks",
                "pass an output that is as many times as large as the input as there are ranks",
            )
        name = name_of_any_size(verb, source)
        host, result = host_input(source, name), host_output(output, name)
        if output.numel() == 0:
            return NOTHING

        def finish(operation: _core.Operation, index: int) -> None:
            self.check_received(operation.counts(index), [elements_on_wire(host, source.numel())] * self.members.size)
            operation.copy_output(wire_of(result), index)
            put_back_counted(result, output)

        return Part(_core.Request(Collective.ALLGATHER, name, wire_of(host)), finish)

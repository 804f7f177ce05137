"""The pieces of a sharded optimizer: parameters that are exchanged together, and what each rank steps on. Main thread.

Two kinds of pieces divide the work:

* ``SplitPiece``: the elements of all its parameters in a row, an equal share for each rank. For optimizers that treat
  each element alone (SGD, Adam, ...). All ranks have the same work and memory.
* ``OwnedPiece``: whole parameters that one rank owns. For all other optimizers, as LAMB and Muon need whole tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..._api import synchronize
from ..._data_movement import allgather_async, broadcast_
from ..._ops import ReduceOp
from ..._process_sets import ProcessSet
from ..._reductions import reduce_async, reducescatter_async

State = dict[str, Any]


class Place:
    """This rank in the process set, and the ranks of the set."""

    def __init__(self, session: Any, process_set: ProcessSet, op: ReduceOp) -> None:
        self.index: int = session.rank
        self.size: int = session.size
        self.process_set = process_set
        self.op = op
        self.ranks = list(process_set.ranks)  # numbers in the job


class Piece:
    """What both kinds share: how gradients come in and results go out.

    ``shares`` is what this rank's optimizer steps on, empty on ranks that own nothing of it.
    """

    shares: list[torch.Tensor]

    def __init__(self, name: str, group: int, parameters: Sequence[torch.Tensor], place: Place) -> None:
        self.name = name
        self.group = group
        self.parameters = list(parameters)
        self.place = place
        self.counts = [parameter.numel() for parameter in parameters]
        self.elements = sum(self.counts)
        self.passes: dict[int, int] = {}  # backward passes of each parameter since the last step, by id
        self._handle: Any = None
        self.is_started = False
        self.names: set[str] = set()  # of operations that were made

    def operation(self, what: str) -> str:
        """The name of one."""
        name = f"{self.name}.{what}"
        self.names.add(name)
        return name

    def is_ready(self, passes: int) -> bool:
        """Every gradient of the step is there."""
        return all(self.passes.get(id(parameter), 0) >= passes for parameter in self.parameters)

    def start(self) -> None:
        """Begins the exchange and frees the gradients. A parameter without one counts as zero."""
        flat = self._flat([parameter.grad for parameter in self.parameters])
        for parameter in self.parameters:
            parameter.grad = None
        self.is_started = True
        self._handle = self._begin(flat)

    def finish(self) -> None:
        """Waits for the exchange: the shares have their gradients then."""
        if self._handle is not None:
            handle, self._handle = self._handle, None
            self._take(synchronize(handle))

    def forget(self) -> None:
        """The gradients were zeroed."""
        self.finish()
        self.is_started = False
        self.passes.clear()
        for share in self.shares:
            share.grad = None

    def refresh(self) -> None:
        """Takes what was written into the parameters since the last step."""

    def publish(self) -> None:
        """Gives all ranks the parameters that were stepped."""
        raise NotImplementedError

    def _flat(self, tensors: Sequence[torch.Tensor | None]) -> torch.Tensor:
        first = self.parameters[0]
        flat = torch.zeros(self._length(), dtype=first.dtype)
        for part, tensor in zip(flat[: self.elements].split(self.counts), tensors):
            if tensor is not None:
                dense = tensor.to_dense() if tensor.layout != torch.strided else tensor
                part.copy_(dense.detach().reshape(-1))
        return flat

    def _write(self, flat: torch.Tensor) -> None:
        with torch.no_grad():
            for part, parameter in zip(flat[: self.elements].split(self.counts), self.parameters):
                parameter.copy_(part.view(parameter.shape))

    def _length(self) -> int:
        return self.elements

    def _begin(self, flat: torch.Tensor) -> Any:
        raise NotImplementedError

    def _take(self, result: Any) -> None:
        raise NotImplementedError


class SplitPiece(Piece):
    """Elements, an equal share for each rank."""

    def __init__(self, name: str, group: int, parameters: Sequence[torch.Tensor], place: Place) -> None:
        super().__init__(name, group, parameters, place)
        self.length = -(-self.elements // place.size)
        self.shares = [torch.zeros(self.length, dtype=self.parameters[0].dtype)]
        self.refresh()

    def _length(self) -> int:
        return self.length * self.place.size

    def _begin(self, flat: torch.Tensor) -> Any:
        return reducescatter_async(
            flat, name=self.operation("gradient"), op=self.place.op, process_set=self.place.process_set
        )

    def _take(self, result: torch.Tensor) -> None:
        self.shares[0].grad = result

    def slice_of(self, tensors: Sequence[torch.Tensor | None]) -> torch.Tensor:
        """This rank's share of one tensor for each parameter."""
        first = self.place.index * self.length
        return self._flat(tensors)[first : first + self.length].clone()

    def refresh(self) -> None:
        """Takes what was written into the parameters since the last step."""
        share, at = self.shares[0], -self.place.index * self.length
        for parameter, count in zip(self.parameters, self.counts):
            begin, end = max(0, at), min(self.length, at + count)
            if begin < end:
                share[begin:end].copy_(parameter.detach().reshape(-1)[begin - at : end - at])
            at += count

    def publish(self) -> None:
        """Gives all ranks the parameters that were stepped."""
        self._write(self._gathered(self.shares[0], "parameters"))

    def _gathered(self, share: torch.Tensor, what: str) -> torch.Tensor:
        name = self.operation(what)
        flat = synchronize(allgather_async(share.detach(), name=name, process_set=self.place.process_set))
        return flat.view(-1)  # type: ignore[no-any-return]

    def whole_state(self, states: Sequence[State]) -> list[State]:
        """The state of each parameter, from the shares of all ranks. All ranks call it."""
        whole: list[State] = [{} for _ in self.parameters]
        for key, value in sorted(states[0].items()):
            if isinstance(value, torch.Tensor) and value.shape == self.shares[0].shape:
                parts = self._gathered(value, f"state.{key}")[: self.elements].split(self.counts)
                for state, part, parameter in zip(whole, parts, self.parameters):
                    state[key] = part.clone().view(parameter.shape)
            else:
                for state in whole:
                    state[key] = value.clone() if isinstance(value, torch.Tensor) else value
        return whole

    def shared_state(self, whole: Sequence[State]) -> list[State]:
        """This rank's share of whole_state(). States that differ in more than their tensors are those of the first."""
        if not any(whole):
            return [{}]
        known = next(state for state in whole if state)
        shape_of = next(parameter.shape for state, parameter in zip(whole, self.parameters) if state is known)
        share: State = {}
        for key, value in known.items():
            if isinstance(value, torch.Tensor) and value.shape == shape_of and key != "step":
                share[key] = self.slice_of([state.get(key) for state in whole]).to(self.shares[0].dtype)
            else:
                share[key] = value.clone() if isinstance(value, torch.Tensor) else value
        return [share]


class OwnedPiece(Piece):
    """Whole parameters of one owner."""

    def __init__(
        self, name: str, group: int, parameters: Sequence[torch.Tensor], place: Place, owner: int
    ) -> None:
        super().__init__(name, group, parameters, place)
        self.owner = owner
        self.is_mine = owner == place.index
        # Others than leaves of the graph, so that their gradients are not those of backward().
        self.shares = [parameter.detach() for parameter in parameters] if self.is_mine else []

    def _begin(self, flat: torch.Tensor) -> Any:
        return reduce_async(
            flat, self.place.ranks[self.owner], name=self.operation("gradient"), op=self.place.op,
            process_set=self.place.process_set,
        )  # fmt: skip

    def _take(self, result: Any) -> None:
        if self.is_mine:
            for share, part in zip(self.shares, result.view(-1).split(self.counts)):
                share.grad = part.view(share.shape)

    def refresh(self) -> None:
        """Follows parameters that were given other storage."""
        for share, parameter in zip(self.shares, self.parameters):
            if share.data_ptr() != parameter.data_ptr():
                share.set_(parameter.detach())  # type: ignore[call-overload]

    def publish(self) -> None:
        """Gives all ranks the parameters that were stepped."""
        flat = self._flat(self.parameters if self.is_mine else [])
        root = self.place.ranks[self.owner]
        broadcast_(flat, root, name=self.operation("parameters"), process_set=self.place.process_set)
        if not self.is_mine:
            self._write(flat)

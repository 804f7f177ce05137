"""The pieces of a sharded optimizer: parameters that are exchanged together, and what each rank steps on. Main thread.

Two kinds of pieces divide the work:

* ``SplitPiece``: the elements of all its parameters in a row, an equal share for each rank. For optimizers that treat
  each element alone (SGD, Adam, ...). All ranks have the same work and memory.
* ``OwnedPiece``: whole parameters that one rank owns. For all other optimizers, as LAMB and Muon need whole tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from ..._api import synchronize
from ..._data_movement import allgather_async, broadcast_
from ..._objects import allgather_object, broadcast_object
from ..._ops import ReduceOp
from ..._process_sets import ProcessSet
from ..._reductions import reduce_async, reducescatter_async

State = dict[str, Any]
# Of an optimizer's state: numbers for a whole tensor, also where the tensor has one element.
_WHOLE = ("step", "eta", "mu", "mu_product")


class Place:
    """This rank in the process set, and the ranks of the set."""

    def __init__(self, session: Any, process_set: ProcessSet, op: ReduceOp) -> None:
        self.index: int = session.rank
        self.size: int = session.size
        self.process_set = process_set
        self.op = op
        self.ranks = list(process_set.ranks)  # numbers in the job


class Cut(NamedTuple):
    """The part of a parameter that this rank steps on: elements begin to end of it, from ``at`` on in the share."""

    parameter: int  # number in the piece
    begin: int
    end: int
    at: int

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same part of a tensor of the parameter's shape, as a row."""
        return tensor.detach().reshape(-1)[self.begin : self.end]

    def in_share(self, share: torch.Tensor) -> torch.Tensor:
        """Where this part is in the share of the piece."""
        return share[self.at : self.at + self.end - self.begin]


class Piece:
    """What both kinds share: how gradients come in and results go out.

    ``shares`` is what this rank's optimizer steps on, one for each of ``cuts``; none on ranks that own nothing of it.
    """

    shares: list[torch.Tensor]
    cuts: list[Cut]

    def __init__(self, name: str, group: int, parameters: Sequence[torch.Tensor], place: Place) -> None:
        self.name = name
        self.group = group
        self.parameters = list(parameters)
        self.place = place
        self.counts = [parameter.numel() for parameter in parameters]
        self.elements = sum(self.counts)
        self.passes: dict[int, int] = {}  # backward passes of each parameter since the last step, by id
        self.has_gradient = [False] * len(self.parameters)  # on this rank, when the exchange began
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
        """Begins the exchange and frees the gradients. A parameter without one adds zero to those of other ranks."""
        self.has_gradient = [parameter.grad is not None for parameter in self.parameters]
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

    def whole_state(self, states: Sequence[State]) -> list[State]:
        """The state of each parameter, from the states of the shares of all ranks. All ranks call it."""
        raise NotImplementedError

    def shared_state(self, whole: Sequence[State]) -> list[State]:
        """The states of this rank's shares, from whole_state()."""
        raise NotImplementedError

    def publish(self) -> None:
        """Gives all ranks the parameters that were stepped."""
        raise NotImplementedError

    def _flat(self, tensors: Sequence[torch.Tensor | None]) -> torch.Tensor:
        first = self.parameters[0]
        flat = torch.empty(self._length(), dtype=first.dtype, device="cpu")
        flat[self.elements :].zero_()
        for part, tensor in zip(flat[: self.elements].split(self.counts), tensors):
            if tensor is None:
                part.zero_()
            else:
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
    """Elements, an equal share for each rank. Each part of a parameter in the share is stepped on its own."""

    def __init__(self, name: str, group: int, parameters: Sequence[torch.Tensor], place: Place) -> None:
        super().__init__(name, group, parameters, place)
        self.length = -(-self.elements // place.size)
        self._share = torch.zeros(self.length, dtype=self.parameters[0].dtype, device="cpu")
        self.cuts = list(self._cut())
        self.shares = [cut.in_share(self._share) for cut in self.cuts]
        self.refresh()

    def _cut(self) -> Iterator[Cut]:
        at = -self.place.index * self.length  # of the parameter, from the begin of the share
        for number, count in enumerate(self.counts):
            begin, end = max(0, -at), min(count, self.length - at)
            if begin < end:
                yield Cut(number, begin, end, at + begin)
            at += count

    def _length(self) -> int:
        return self.length * self.place.size

    def _begin(self, flat: torch.Tensor) -> Any:
        return reducescatter_async(
            flat, name=self.operation("gradient"), op=self.place.op, process_set=self.place.process_set
        )

    def _take(self, result: torch.Tensor) -> None:
        for share, cut in zip(self.shares, self.cuts):
            share.grad = cut.in_share(result)

    def refresh(self) -> None:
        """Takes what was written into the parameters since the last step."""
        for share, cut in zip(self.shares, self.cuts):
            share.copy_(cut.of(self.parameters[cut.parameter]))

    def publish(self) -> None:
        """Gives all ranks the parameters that were stepped."""
        self._write(self._gathered(self._share, "parameters"))

    def _gathered(self, share: torch.Tensor, what: str) -> torch.Tensor:
        name = self.operation(what)
        flat = synchronize(allgather_async(share.detach(), name=name, process_set=self.place.process_set))
        return flat.view(-1)  # type: ignore[no-any-return]

    def whole_state(self, states: Sequence[State]) -> list[State]:
        """The state of each parameter, from the states of the shares of all ranks. All ranks call it."""
        whole: list[State] = [{} for _ in self.parameters]
        mine = [(cut.parameter, _outline(state, share)) for cut, state, share in zip(self.cuts, states, self.shares)]
        everyone = allgather_object(mine, name=self.operation("state"), process_set=self.place.process_set)
        for number, outline in (pair for pairs in everyone for pair in pairs):
            whole[number] = {**outline, **whole[number]}
        kinds = {(key, value) for state in whole for key, value in state.items() if isinstance(value, torch.dtype)}
        for key, dtype in sorted(kinds, key=str):
            flat = torch.zeros(self.length, dtype=dtype, device="cpu")
            for cut, state in zip(self.cuts, states):
                if isinstance(state.get(key), torch.Tensor):
                    cut.in_share(flat).copy_(state[key])
            parts = self._gathered(flat, f"state.{key}")[: self.elements].split(self.counts)
            for state, part, parameter in zip(whole, parts, self.parameters):
                if isinstance(state.get(key), torch.dtype):
                    state[key] = _in_order_of(parameter, part.clone())
        return whole

    def shared_state(self, whole: Sequence[State]) -> list[State]:
        """The states of this rank's shares, from whole_state()."""
        states = []
        for share, cut in zip(self.shares, self.cuts):
            shape = self.parameters[cut.parameter].shape
            states.append({
                key: cut.of(value).to(share.dtype).clone() if _is_split(key, value, shape) else _cloned(value)
                for key, value in whole[cut.parameter].items()
            })  # fmt: skip
        return states


def _in_order_of(parameter: torch.Tensor, flat: torch.Tensor) -> torch.Tensor:
    """The elements, which are in the order of a contiguous tensor, in the order that the parameter has in memory.

    Fused optimizers walk through parameter, gradient and state in memory order.
    """
    shaped = flat.view(parameter.shape)
    if parameter.is_contiguous():
        return shaped
    return torch.empty_like(parameter, dtype=flat.dtype, requires_grad=False).copy_(shaped)


def _is_split(key: str, value: Any, shape: torch.Size) -> bool:
    """A number for each element of a tensor of this shape."""
    return isinstance(value, torch.Tensor) and value.shape == shape and key not in _WHOLE


def _outline(state: State, share: torch.Tensor) -> State:
    """A state with dtypes in the place of tensors that are split."""
    return {key: value.dtype if _is_split(key, value, share.shape) else value for key, value in state.items()}


def _cloned(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


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
        self.cuts = [Cut(number, 0, count, 0) for number, count in enumerate(self.counts)] if self.is_mine else []

    def _begin(self, flat: torch.Tensor) -> Any:
        return reduce_async(
            flat, self.place.ranks[self.owner], name=self.operation("gradient"), op=self.place.op,
            process_set=self.place.process_set,
        )  # fmt: skip

    def _take(self, result: Any) -> None:
        if self.is_mine:
            for share, part in zip(self.shares, result.view(-1).split(self.counts)):
                share.grad = _in_order_of(share, part)

    def whole_state(self, states: Sequence[State]) -> list[State]:
        """The owner's states. All ranks call it."""
        place = self.place
        whole: list[State] = broadcast_object(
            list(states), place.ranks[self.owner], name=self.operation("state"), process_set=place.process_set
        )
        return whole

    def shared_state(self, whole: Sequence[State]) -> list[State]:
        """What the owner keeps of it."""
        return [{key: _cloned(value) for key, value in state.items()} for state in whole] if self.is_mine else []

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

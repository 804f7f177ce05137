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


class _Arrivals:
    """The gradients of one parameter since the last step.

    A reentrant checkpoint of a layer that is used twice brings two in one backward pass. So nobody knows how many will
    come until the first pass has ended.
    """

    def __init__(self) -> None:
        self._grads_per_pass = 0  # as many as any pass has brought
        self.begin_round()

    def begin_round(self) -> None:
        """None has come."""
        self._grads = self._passes = 0
        self._is_complete = False

    def count(self, passes: int) -> bool:
        """One more; True when it is the last one of ``passes``."""
        self._grads += 1
        return self._grads == self._grads_per_pass and self._passes + 1 >= passes and self._complete()

    def end_pass(self, passes: int) -> bool:
        """No more come in this backward pass; True when the last one had come unnoticed."""
        if not self._grads:
            return False
        self._grads_per_pass = max(self._grads, self._grads_per_pass)
        self._grads = 0
        self._passes += 1
        return self._passes >= passes and self._complete()

    def _complete(self) -> bool:
        was_complete, self._is_complete = self._is_complete, True
        return not was_complete


class Piece:
    """What both kinds share: how gradients come in and results go out.

    ``shares`` is what this rank's optimizer steps on, one for each of ``cuts``; none on ranks that own nothing of it.
    ``gradients`` are theirs, from finish() on until step().
    """

    shares: list[torch.Tensor]
    cuts: list[Cut]
    gradients: list[torch.Tensor | None]

    def __init__(self, name: str, parameters: Sequence[torch.Tensor], place: Place) -> None:
        self.name = name
        self.parameters = list(parameters)
        self.place = place
        self.counts = [parameter.numel() for parameter in parameters]
        self.elements = sum(self.counts)
        self._arrivals = {id(parameter): _Arrivals() for parameter in self.parameters}
        self._incomplete = len(self.parameters)  # those whose gradients have not all come
        self.has_gradient = [False] * len(self.parameters)  # on this rank, when the exchange began
        self._handle: Any = None
        self.is_started = False
        self.names: set[str] = set()  # of operations that were made

    def operation(self, what: str) -> str:
        """The name of one."""
        name = f"{self.name}.{what}"
        self.names.add(name)
        return name

    @property
    def is_ready(self) -> bool:
        """Every gradient of the step is there."""
        return self._incomplete == 0

    def count(self, parameter: torch.Tensor, passes: int) -> None:
        """One more gradient has come, of ``passes`` backward passes."""
        self._incomplete -= self._arrivals[id(parameter)].count(passes)

    def end_pass(self, passes: int) -> None:
        """No more gradients come in this backward pass."""
        self._incomplete -= sum(arrivals.end_pass(passes) for arrivals in self._arrivals.values())

    def start(self) -> None:
        """Begins the exchange and frees the gradients. A parameter without one adds zero to those of other ranks."""
        self.has_gradient = [parameter.grad is not None for parameter in self.parameters]
        flat = self._flat([parameter.grad for parameter in self.parameters])
        for parameter in self.parameters:
            parameter.grad = None
        self.is_started = True
        self._handle = self._begin(flat)

    def finish(self) -> None:
        """Waits for the exchange: ``gradients`` are there then."""
        if self._handle is not None:
            handle, self._handle = self._handle, None
            self._take(synchronize(handle))

    def forget(self) -> None:
        """The gradients were zeroed, or stepped on."""
        self.finish()
        self.is_started = False
        for arrivals in self._arrivals.values():
            arrivals.begin_round()
        self._incomplete = len(self.parameters)
        self.gradients = [None] * len(self.shares)

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

    def __init__(self, name: str, parameters: Sequence[torch.Tensor], place: Place) -> None:
        super().__init__(name, parameters, place)
        self.length = -(-self.elements // place.size)
        self._share = torch.zeros(self.length, dtype=self.parameters[0].dtype, device="cpu")
        self.cuts = list(self._cut())
        self.shares = [cut.in_share(self._share) for cut in self.cuts]
        self.gradients = [None] * len(self.shares)
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
        self.gradients = [cut.in_share(result) for cut in self.cuts]

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
    """Whole parameters of one owner. It steps on the parameters themselves: its optimizer may know them by identity."""

    def __init__(self, name: str, parameters: Sequence[torch.Tensor], place: Place, owner: int) -> None:
        super().__init__(name, parameters, place)
        self.owner = owner
        self.is_mine = owner == place.index
        self.shares = self.parameters if self.is_mine else []
        self.gradients = [None] * len(self.shares)
        self.cuts = [Cut(number, 0, count, 0) for number, count in enumerate(self.counts)] if self.is_mine else []

    def _begin(self, flat: torch.Tensor) -> Any:
        return reduce_async(
            flat, self.place.ranks[self.owner], name=self.operation("gradient"), op=self.place.op,
            process_set=self.place.process_set,
        )  # fmt: skip

    def _take(self, result: Any) -> None:
        if self.is_mine:
            parts = result.view(-1).split(self.counts)
            self.gradients = [_in_order_of(share, part) for share, part in zip(self.shares, parts)]

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

    def publish(self) -> None:
        """Gives all ranks the parameters that were stepped."""
        flat = self._flat(self.parameters if self.is_mine else [])
        root = self.place.ranks[self.owner]
        broadcast_(flat, root, name=self.operation("parameters"), process_set=self.place.process_set)
        if not self.is_mine:
            self._write(flat)

"""``DistributedOptimizer(..., shard=True)``: each rank keeps the optimizer's state of its share of the parameters.

Rajbhandari et al. 2020 (ZeRO, stages 1 and 2). After the last backward() of a step, gradients are reduced to the rank
that steps on them, piece by piece, and freed. step() steps on this rank's share, and then all ranks gather the
parameters. Main thread, and autograd's threads for hooks.
"""

from __future__ import annotations

import contextlib
import functools
import math
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from ..._errors import BusyError, bad_argument
from ..._objects import broadcast_object
from ..._ops import Average, Sum, checked_op
from ..._process_sets import ProcessSet, lowest_rank, session_of
from ..._reductions import allreduce_
from .._broadcast import broadcast_parameters
from .._buckets.detach import closed_error
from .._buckets.retire import retire_names
from .._exchangers import weakly
from .._names import all_named
from .._numbers import next_number
from .._takeover import busy_error, take_over, why_given_up
from .._timeline import profiled
from .pieces import OwnedPiece, Piece, Place, SplitPiece, State

_PIECE_BYTES = 32 << 20
# These step on each element alone, so a parameter may be cut anywhere.
_ELEMENTWISE = ("ASGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD")
# They do not go with it.
_OTHER_OPTIONS = ("compression", "mode", "sparse_parameters", "schedule", "reduce_dtype")
_REFUSED = {
    "LBFGS": "its state is about all parameters at once",
    "SparseAdam": "it steps on rows of gradients",
}

if TYPE_CHECKING:
    _Optimizer = torch.optim.Optimizer  # what every instance is, too
else:
    _Optimizer = object


class ShardedOptimizerBase(_Optimizer):
    """These methods go in front of the optimizer's own; it is still of its own class as well."""

    _pieces: list[Piece]
    _place: Place
    _passes: int
    _next: int  # piece to start
    _ownership: Ownership
    _counted: Callable[[], Any] | None  # the plain step in a scheduler's wrapper

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step on this rank's share; all ranks have all parameters afterwards.

        Raises MismatchError, PeerLostError, TimeoutError.
        """
        self._ownership.refuse_when_released()
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.synchronize()
        with torch.no_grad():
            for piece in self._pieces:
                piece.refresh()
            with _Shares(self):
                (self._counted or super().step)()
            self._publish()
        self._next = 0
        return loss

    step.hooked = True  # type: ignore[attr-defined]  # torch's step hooks run in the inner step

    @profiled("gradbus::wait")
    def synchronize(self) -> None:
        """Ends the exchange of gradients. Call it before clip_grad_norm_() if you made fewer passes than announced."""
        self._ownership.refuse_when_released()
        for piece in self._pieces[self._next :]:
            self._start(piece)
        for piece in self._pieces:
            piece.finish()

    def flush(self) -> int:
        """Nothing is in flight between steps."""
        return 0

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets all gradients, also those that were exchanged."""
        self._ownership.refuse_when_released()
        self._next = 0
        for piece in self._pieces:
            piece.forget()
        for group in self.param_groups:
            for parameter in group["params"]:
                if set_to_none:
                    parameter.grad = None
                elif parameter.grad is not None:
                    parameter.grad.detach_().zero_()

    def clip_grad_norm_(self, max_norm: float) -> float:
        """Scales the gradients so that their norm over all parameters is at most ``max_norm``; returns the norm.

        In the place of torch.nn.utils.clip_grad_norm_(), because no rank has all gradients. All ranks call it.
        """
        self.synchronize()
        gradients = [share.grad for piece in self._pieces for share in piece.shares if share.grad is not None]
        squares = torch.tensor([sum(float(g.double().abs().square().sum()) for g in gradients)], dtype=torch.float64)
        total = allreduce_(squares, name="gradbus.shard.norm", op=Sum, process_set=self._place.process_set)
        norm = math.sqrt(float(total))
        factor = max_norm / (norm + 1e-6)
        if factor < 1:
            for gradient in gradients:
                gradient.mul_(factor)
        return norm

    def state_dict(self) -> dict[str, Any]:
        """The state of the whole optimizer, in the form of one that is not sharded. All ranks call it.

        Any number of ranks can load it, and so can an optimizer without Gradbus.
        """
        self._ownership.refuse_when_released()
        index_of = self._indices()
        whole: dict[int, State] = {}
        for piece in self._pieces:
            for parameter, state in zip(piece.parameters, self._whole_state(piece)):
                if state:
                    whole[index_of[id(parameter)]] = state
        own = self.__dict__["state"]
        self.__dict__["state"] = type(own)(dict)
        try:
            packed = super().state_dict()
        finally:
            self.__dict__["state"] = own
        return {**packed, "state": dict(sorted(whole.items()))}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes this rank's share of state_dict(), or of the state of an optimizer that is not sharded."""
        self._ownership.refuse_when_released()
        super().load_state_dict({**state_dict, "state": {}})
        states, index_of = state_dict["state"], self._indices()
        self._take_shares(lambda parameter, none: states.get(index_of[id(parameter)], none))

    def _take_shares(self, state_of: Callable[[torch.Tensor, State], State]) -> None:
        for piece in self._pieces:
            whole = [state_of(parameter, {}) for parameter in piece.parameters]
            shared = piece.shared_state(whole) if isinstance(piece, SplitPiece) else map(_cloned, whole)
            for share, state in zip(piece.shares, shared):
                if state:
                    self.state[share] = state

    def shard_bytes(self) -> int:
        """Bytes of optimizer state on this rank."""
        return sum(
            value.numel() * value.element_size()
            for state in self.state.values()
            for value in state.values()
            if isinstance(value, torch.Tensor)
        )

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As torch's. Every rank must add the same group, between step() and backward()."""
        if "_ownership" in self.__dict__:
            self._ownership.refuse_when_released()
        super().add_param_group(param_group)
        if "_ownership" in self.__dict__:
            self._add([len(self.param_groups) - 1])

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise bad_argument("a sharded optimizer cannot be copied or pickled", "save its state_dict()")

    def _indices(self) -> dict[int, int]:
        parameters = (parameter for group in self.param_groups for parameter in group["params"])
        return {id(parameter): index for index, parameter in enumerate(parameters)}

    def _whole_state(self, piece: Piece) -> list[State]:
        states = [self.state.get(share, {}) for share in piece.shares]
        if isinstance(piece, SplitPiece):
            return piece.whole_state(states)
        assert isinstance(piece, OwnedPiece)
        place = piece.place
        whole: list[State] = broadcast_object(
            states, place.ranks[piece.owner], name=piece.operation("state"), process_set=place.process_set
        )
        return whole

    def _add(self, groups: Iterable[int]) -> None:
        number = next_number(self._place.process_set)
        for group in groups:
            self._pieces += _pieces_of(self, group, f"gradbus.shard.{number}.{group}", self._place)
        self._next = 0
        self._ownership.take(self)

    def _arrived(self, piece: Piece, parameter: torch.Tensor) -> None:
        if piece.is_started:
            raise BusyError(
                f"GB-O905 IN_FLIGHT: a parameter of {piece.name} has another gradient before step() | next: pass "
                f"backward_passes_per_step={self._passes + 1}, or call step() or zero_grad() after each backward()"
            )
        piece.passes[id(parameter)] = piece.passes.get(id(parameter), 0) + 1
        # In one order on all ranks, whatever the order of gradients is.
        while self._next < len(self._pieces) and self._pieces[self._next].is_ready(self._passes):
            self._start(self._pieces[self._next])

    @profiled("gradbus::gather")
    def _publish(self) -> None:
        for piece in self._pieces:
            piece.publish()
            piece.forget()

    def _start(self, piece: Piece) -> None:
        if self._next:
            self._pieces[self._next - 1].finish()  # one at a time, so that one is in memory
        piece.start()
        self._next += 1


class _Shares:
    """In this block the optimizer's groups have the shares of this rank in the place of parameters."""

    def __init__(self, optimizer: ShardedOptimizerBase) -> None:
        self._optimizer = optimizer
        self._parameters = [group["params"] for group in optimizer.param_groups]

    def __enter__(self) -> None:
        for number, group in enumerate(self._optimizer.param_groups):
            pieces = [piece for piece in self._optimizer._pieces if piece.group == number]
            group["params"] = [share for piece in pieces for share in piece.shares]

    def __exit__(self, *_: object) -> None:
        for group, parameters in zip(self._optimizer.param_groups, self._parameters):
            group["params"] = parameters


def _cloned(state: State) -> State:
    return {key: value.clone() if isinstance(value, torch.Tensor) else value for key, value in state.items()}


class Ownership:
    """Of one optimizer: its hooks on its parameters, until a newer wrapper takes them or the optimizer is gone."""

    def __init__(self, process_set: ProcessSet) -> None:
        self._process_set = process_set
        self._pieces: list[Piece] = []
        self._hooks: list[Any] = []
        self._why_released = ""

    def take(self, optimizer: ShardedOptimizerBase) -> None:
        """Its parameters are this one's; an earlier wrapper of one gives up."""
        self._pieces = optimizer._pieces
        self._remove_hooks()
        parameters = {id(parameter) for piece in self._pieces for parameter in piece.parameters}
        take_over(self, parameters, f"a newer DistributedOptimizer ({type(optimizer).__bases__[1].__name__})")
        self._hooks = list(_hook(optimizer))

    @property
    def is_released(self) -> bool:
        """A newer wrapper has the parameters."""
        return bool(self._why_released)

    def refuse_when_released(self) -> None:
        """Raises ClosedError."""
        if self.is_released:
            raise closed_error(self._why_released)

    def holds(self, parameters: Set[int]) -> bool:
        """Whether one of these is its own; they are told by id()."""
        return any(id(parameter) in parameters for piece in self._pieces for parameter in piece.parameters)

    def give_up(self, who: str) -> None:
        """Another wrapper has these parameters from here on. Raises BusyError between backward() and step()."""
        if any(piece.is_started for piece in self._pieces):
            raise busy_error()
        self._why_released = why_given_up(who)
        self._let_go()

    def _let_go(self) -> None:
        self._remove_hooks()
        retire_names([name for piece in self._pieces for name in sorted(piece.names)], self._process_set)
        self._pieces = []

    def _remove_hooks(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def __del__(self) -> None:
        # The optimizer is gone. Its hooks are the parameters', which live on.
        with contextlib.suppress(Exception):
            self._let_go()


def _hook(optimizer: ShardedOptimizerBase) -> Iterator[Any]:
    """Exchanges begin in backward() where torch has hooks for it (2.1 and newer), else in step()."""
    reference = weakref.ref(optimizer)  # a hook lives as long as its parameter

    def arrived(parameter: torch.Tensor, piece: weakref.ref[Piece]) -> None:
        itself, its_piece = reference(), piece()
        if itself is not None and its_piece is not None:
            itself._arrived(its_piece, parameter)

    for piece in optimizer._pieces:
        for parameter in piece.parameters:
            register = getattr(parameter, "register_post_accumulate_grad_hook", None)
            if register is not None:
                yield register(functools.partial(arrived, piece=weakref.ref(piece)))


def _pieces_of(optimizer: Any, group: int, name: str, place: Place) -> list[Piece]:
    """Of a group: parameters of one dtype, those whose gradients come first in front."""
    trainable = [p for p in reversed(optimizer.param_groups[group]["params"]) if p.requires_grad and p.numel()]
    split = _base_name(type(optimizer)) in _ELEMENTWISE
    pieces: list[Piece] = []
    owners = _owners(trainable, place.size)
    keys = [(p.dtype, 0 if split else owners[id(p)]) for p in trainable]
    for key in dict.fromkeys(keys):
        members = [p for p, own in zip(trainable, keys) if own == key]
        for run in _runs(members, _PIECE_BYTES):
            full = f"{name}.{len(pieces)}"
            pieces.append(SplitPiece(full, group, run, place) if split else OwnedPiece(full, group, run, place, key[1]))
    return pieces


def _owners(parameters: Sequence[torch.Tensor], size: int) -> dict[int, int]:
    """The largest parameter goes to the rank with the fewest elements, then the next one."""
    loads = [0] * size
    owners = {}
    for parameter in sorted(parameters, key=torch.Tensor.numel, reverse=True):
        owner = loads.index(min(loads))
        loads[owner] += parameter.numel()
        owners[id(parameter)] = owner
    return owners


def _runs(parameters: Sequence[torch.Tensor], piece_bytes: int) -> Iterator[list[torch.Tensor]]:
    run: list[torch.Tensor] = []
    for parameter in parameters:
        run.append(parameter)
        if sum(p.numel() * p.element_size() for p in run) >= piece_bytes:
            yield run
            run = []
    if run:
        yield run


def _base_name(kind: type) -> str:
    """Of the optimizer's own class, if it is torch's."""
    own = next(base for base in kind.__mro__ if base.__module__ != __name__)
    return own.__name__ if own.__module__.startswith("torch.optim.") else ""


def shard(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, Any]] | None,
    passes: int,
    op: int,
    process_set: ProcessSet,
    broadcast: bool,
    options: Sequence[Any],
) -> Any:
    """Makes the optimizer a sharded one, and returns it. ``options``: the values of _OTHER_OPTIONS."""
    given = [name for name, value in zip(_OTHER_OPTIONS, options) if value]
    if given:
        raise bad_argument(
            f"DistributedOptimizer: {given[0]}= does not go with shard=True, whose gradients are reduced exactly",
            "leave one of them out",
        )
    why = _REFUSED.get(_base_name(type(optimizer)))
    if why is not None:
        raise bad_argument(
            f"DistributedOptimizer: {type(optimizer).__name__} cannot be sharded: {why}", "leave shard=True out"
        )
    named = all_named(optimizer, named_parameters)
    device = next((p.device for _, p in named if p.device.type != "cpu"), None)
    if device is not None:
        raise bad_argument(f"DistributedOptimizer: shard=True with parameters on {device}", "keep them on the CPU")
    session = session_of(process_set, "DistributedOptimizer")
    if broadcast:
        broadcast_parameters(named, lowest_rank(process_set), process_set)
    changed: Any = optimizer
    place = Place(session, process_set, checked_op(op, "DistributedOptimizer", (Average, Sum)))
    _put_in_front(changed)
    changed._place, changed._passes, changed._pieces = place, passes, []
    changed._ownership = Ownership(process_set)
    states, changed.state = changed.state, type(changed.state)(dict)
    changed._add(range(len(optimizer.param_groups)))
    changed._take_shares({parameter: dict(state) for parameter, state in states.items()}.get)
    return changed


def _put_in_front(optimizer: Any) -> None:
    kind = type(optimizer)
    # A scheduler made earlier has put its counting wrapper into the instance: keep it innermost.
    optimizer._counted = counted = optimizer.__dict__.pop("step", None)
    optimizer.__class__ = type(f"Sharded{kind.__name__}", (ShardedOptimizerBase, kind), {"__module__": __name__})
    if counted is not None:
        optimizer.step = functools.update_wrapper(weakly(ShardedOptimizerBase.step, optimizer), counted)

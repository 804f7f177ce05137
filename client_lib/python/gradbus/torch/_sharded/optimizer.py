"""``DistributedOptimizer(..., shard=True)``: each rank keeps the optimizer's state of its share of the parameters.

Rajbhandari et al. 2020 (ZeRO, stages 1 and 2). After the last backward() of a step, gradients are reduced to the rank
that steps on them, piece by piece, and freed. step() steps on this rank's share, and then all ranks gather the
parameters. Main thread, and autograd's threads for hooks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from ..._api import synchronize
from ..._errors import BusyError, bad_argument
from ..._ops import Average, Max, Sum, checked_op
from ..._process_sets import ProcessSet, lowest_rank, session_of
from ..._reductions import allreduce_async_
from .._broadcast import broadcast_parameters
from .._exchangers import put_in_front
from .._names import all_named
from .._numbers import next_number
from .._own_zero_grad import zero_by_own
from .._replicas import compare_before_step, compare_states
from .._timeline import profiled
from .gradients import Kept, StepGradients, keep, take_out
from .own_step import OwnStep
from .ownership import Ownership, PassEnd
from .pieces import OwnedPiece, Piece, Place, SplitPiece, State
from .replica_facts import ReplicaFacts
from .saved_states import refuse_states_of_none, states_of
from .state_hooks import StateHooks
from .step_hooks import StepHooks

_PIECE_BYTES = 32 << 20
_HOOKS = hasattr(torch.Tensor, "register_post_accumulate_grad_hook")  # from 2.1 on: exchanges begin in backward()
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
    _held: set[int]  # ids of the parameters in pieces
    _place: Place
    _passes: int
    _next: int  # piece to start
    _ended: int  # backward passes since the last step
    _gradients: StepGradients | None  # of this step, when they are exchanged; then of the last one
    _kept: Kept
    _pass_end: PassEnd
    _ownership: Ownership
    _facts: ReplicaFacts
    _counted: Callable[[], Any] | None  # the plain step in a scheduler's wrapper

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step on this rank's share; all ranks have all parameters afterwards.

        Raises MismatchError, PeerLostError, TimeoutError.
        """
        self._ownership.refuse_when_released()
        compare_before_step(self._facts)
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._refuse_unfrozen()
        self.synchronize()
        hooks = StepHooks(self)
        hooks.run_before()
        with torch.no_grad():
            if self._gradients is not None and _HOOKS:
                self._gradients.take_from_parameters(self._pieces)
            for piece in self._pieces:
                piece.refresh()
            with OwnStep(self.param_groups, self._pieces), hooks.aside():
                (self._counted or super().step)()
            self._facts.forget_loaded()
            self._publish()
        hooks.run_after()
        return loss

    step.hooked = True  # type: ignore[attr-defined]  # torch need not wrap it: it runs the hooks

    def _refuse_unfrozen(self) -> None:
        """A parameter that was frozen when shares were made is in none."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.requires_grad and parameter.numel() and id(parameter) not in self._held:
                    raise bad_argument(
                        f"a parameter of shape {tuple(parameter.shape)} trains now, and did not when the optimizer "
                        "was sharded",
                        "unfreeze it first, add it by add_param_group(), or make a new optimizer and call "
                        "DistributedOptimizer(shard=True) again",
                    )

    @profiled("gradbus::wait")
    def synchronize(self) -> None:
        """Ends the exchange of gradients: every ``.grad`` is this rank's share of the result. All ranks call it.

        backward() has done it, unless fewer passes were made than announced.
        """
        self._ownership.refuse_when_released()
        self._begin_round()
        if self._gradients is not None or not self._pieces:
            return
        self._start_all()
        own = [has for piece in self._pieces for has in piece.has_gradient]
        has = [has or number in self._kept for number, has in enumerate(own)]
        first, used = self._pieces[0], torch.tensor(has, dtype=torch.uint8, device="cpu")
        handle = allreduce_async_(
            used, name=first.operation("used"), op=Max, process_set=self._place.process_set
        )
        for piece in self._pieces:
            piece.finish()
        synchronize(handle)
        self._gradients = StepGradients(self._pieces, used.bool().tolist(), self._passes, self._kept)
        if _HOOKS:
            self._gradients.put_into_parameters()

    def _begin_round(self) -> None:
        """If the last step was made. What it stepped on stays a part of ``.grad``, unless a script took it away."""
        gradients = self._gradients
        if gradients is not None and gradients.is_stepped:
            self._gradients = None
            if not gradients.are_in_parameters:
                self._forget()

    def flush(self) -> int:
        """Nothing is in flight between steps."""
        return 0

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets all gradients, also those that were exchanged.

        With ``set_to_none=False``, too, a parameter without a later gradient does not move: no zeros are kept for it.
        """
        self._ownership.refuse_when_released()
        self._forget()
        zero_by_own(super().zero_grad, set_to_none)
        for group in self.param_groups:
            for parameter in group["params"]:
                if set_to_none:
                    parameter.grad = None
                elif parameter.grad is not None:
                    parameter.grad.detach_().zero_()

    def clip_grad_norm_(self, max_norm: float) -> float:
        """Scales the gradients so that their norm over all parameters is at most ``max_norm``; returns the norm.

        torch.nn.utils.clip_grad_norm_() does the same from PyTorch 2.1 on. All ranks call it.
        """
        self.synchronize()
        if _HOOKS:
            parameters = [parameter for piece in self._pieces for parameter in piece.parameters]
            return float(torch.nn.utils.clip_grad_norm_(parameters, max_norm))
        norm = 0.0 if self._gradients is None else math.hypot(*self._gradients.norms(2.0))
        factor = max_norm / (norm + 1e-6)
        for gradient in (gradient for piece in self._pieces for gradient in piece.gradients):
            if factor < 1 and gradient is not None:
                gradient.mul_(factor)
        return norm

    def state_dict(self) -> dict[str, Any]:
        """The state of the whole optimizer, in the form of one that is not sharded. All ranks call it.

        Any number of ranks can load it, and so can an optimizer without Gradbus.
        """
        self._ownership.refuse_when_released()
        hooks = StateHooks(self)
        hooks.before_save()
        index_of = self._indices()
        whole: dict[int, State] = {}
        for piece in self._pieces:
            states = piece.whole_state([self.state.get(share, {}) for share in piece.shares])
            for parameter, state in zip(piece.parameters, states):
                if state and id(parameter) in index_of:
                    whole[index_of[id(parameter)]] = state
        own = self.__dict__["state"]
        self.__dict__["state"] = type(own)(dict)
        try:
            with hooks.aside():
                packed = super().state_dict()
        finally:
            self.__dict__["state"] = own
        return hooks.after_save({**packed, "state": dict(sorted(whole.items()))})

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes this rank's share of state_dict(), or of the state of an optimizer that is not sharded.

        All ranks call it with the same state; the next step compares. Raises InvalidError if a state is of none of its
        parameters.
        """
        self._ownership.refuse_when_released()
        hooks = StateHooks(self)
        whole = hooks.before_load(state_dict.copy())
        refuse_states_of_none(whole)
        with hooks.aside():
            super().load_state_dict({**whole, "state": {}})
        self._take_shares(states_of(self.param_groups, whole))
        hooks.after_load()

    def _take_shares(self, states: dict[int, State]) -> None:
        """``states``: by id of the parameter."""
        self._facts.note_loaded(states)
        for piece in self._pieces:
            whole = [states.get(id(parameter), {}) for parameter in piece.parameters]
            shared = piece.shared_state(whole)
            for share, state in zip(piece.shares, shared):
                if state:
                    self.state[share] = state

    def _refuse_other_states(self, process_set: ProcessSet) -> None:
        """A state that one rank has loaded cannot reach the others: it has kept its share of it only."""
        self._ownership.refuse_when_released()
        if list(process_set.ranks) != self._place.ranks:
            raise bad_argument(
                f"broadcast_optimizer_state: an optimizer that ranks {self._place.ranks} share, on ranks "
                f"{list(process_set.ranks)}",
                "call it with process_set= of the optimizer, on its ranks only",
            )
        compare_states(self._facts)

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
        index_of: dict[int, int] = {}
        for index, parameter in enumerate(parameters):
            index_of.setdefault(id(parameter), index)  # as torch counts one that is in two groups
        return index_of

    def _add(self, groups: Iterable[int]) -> None:
        number = next_number(self._place.process_set)
        for group in groups:
            self._pieces += _pieces_of(self, group, f"gradbus.shard.{number}.{group}", self._place)
        self._held = {id(parameter) for piece in self._pieces for parameter in piece.parameters}
        self._next = self._ended = 0
        self._ownership.take(self)

    def _arrived(self, piece: Piece, parameter: torch.Tensor) -> None:
        self._begin_round()
        if self._gradients is not None and not self._gradients.are_in_parameters:
            self._forget()  # a script took them away without a step, as GradScaler does after an overflow
        if piece.is_started:
            raise _another_gradient_error(piece, self._passes, is_in_pass=self._ended < self._passes)
        self._pass_end.expect()
        piece.count(parameter, self._passes)
        if self._ownership.has_later_hooks(parameter):
            return  # the end of the pass starts it
        # In one order on all ranks, whatever the order of gradients is.
        while self._next < len(self._pieces) and self._pieces[self._next].is_ready:
            self._start(self._pieces[self._next])

    def _end_pass(self) -> None:
        self._ended += 1
        for piece in self._pieces:
            piece.end_pass(self._passes)
        if self._is_due:
            self._start_all()

    @property
    def _is_due(self) -> bool:
        return self._ended >= self._passes and self._gradients is None

    @profiled("gradbus::gather")
    def _publish(self) -> None:
        for piece in self._pieces:
            piece.publish()
        if self._gradients is None or not _HOOKS:
            self._forget()
        else:
            self._gradients.end_step()
            self._end_round()

    def _forget(self) -> None:
        """All gradients of this step, or of the last one."""
        self._end_round()
        for piece in self._pieces:
            take_out(piece.parameters)
        self._gradients = None
        self._kept.clear()

    def _end_round(self) -> None:
        for piece in self._pieces:
            piece.forget()
        self._next = self._ended = 0

    def _start_all(self) -> None:
        for piece in self._pieces[self._next :]:
            self._start(piece)

    def _start(self, piece: Piece) -> None:
        if self._next:
            self._pieces[self._next - 1].finish()  # one at a time, so that one is in memory
        for parameter in piece.parameters:
            keep(parameter)
        piece.start()
        self._next += 1


def _another_gradient_error(piece: Piece, passes: int, is_in_pass: bool) -> BusyError:
    if is_in_pass:
        return BusyError(
            f"GB-O905 IN_FLIGHT: a parameter of {piece.name} has more gradients in this backward() than in earlier "
            "ones, as reentrant checkpoints use it more often | next: pass use_reentrant=False to checkpoint()"
        )
    return BusyError(
        f"GB-O905 IN_FLIGHT: a parameter of {piece.name} has another gradient before step() | next: pass "
        f"backward_passes_per_step={passes + 1}, or call step() or zero_grad() after each backward()"
    )


def _pieces_of(optimizer: Any, group: int, name: str, place: Place) -> list[Piece]:
    """Of a group: parameters of one dtype, those whose gradients come first in front. Pieces keep their parameters in
    whatever group they are later."""
    held = {id(parameter) for piece in optimizer._pieces for parameter in piece.parameters}
    news = [p for p in reversed(optimizer.param_groups[group]["params"]) if id(p) not in held]
    trainable = [p for p in news if p.requires_grad and p.numel()]
    split = _base_name(type(optimizer)) in _ELEMENTWISE
    pieces: list[Piece] = []
    owners = _owners(trainable, place.size)
    keys = [(p.dtype, 0 if split else owners[id(p)]) for p in trainable]
    for key in dict.fromkeys(keys):
        members = [p for p, own in zip(trainable, keys) if own == key]
        for run in _runs(members, _PIECE_BYTES):
            full = f"{name}.{len(pieces)}"
            pieces.append(SplitPiece(full, run, place) if split else OwnedPiece(full, run, place, key[1]))
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
    changed._kept = {}
    changed._gradients, changed._pass_end, changed._ownership = None, PassEnd(changed), Ownership(process_set)
    changed._facts = ReplicaFacts(changed, process_set, named)
    states, changed.state = changed.state, type(changed.state)(dict)
    changed._add(range(len(optimizer.param_groups)))
    changed._take_shares({id(parameter): dict(state) for parameter, state in states.items()})
    return changed


def _put_in_front(optimizer: Any) -> None:
    kind = type(optimizer)
    sharded = type(f"Sharded{kind.__name__}", (ShardedOptimizerBase, kind), {"__module__": __name__})
    optimizer._counted = put_in_front(optimizer, sharded)

"""Who exchange the parameters of one optimizer, each in its mode, and how modes change at fences."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import warnings
import weakref
from collections.abc import Callable, Sequence, Set
from typing import Any, cast

import torch

from .._errors import (
    ExhaustedError,
    InvalidError,
    MismatchError,
    UnavailableError,
    bad_argument,
)
from .._layout import DEFAULT_BUCKET_BYTES
from .._modes.kinds import is_local, is_on_shards
from .._optimizers import superseded
from .._process_sets import ProcessSet, global_process_set, session_of
from ._buckets.delay_compensation import compensation_of
from ._buckets.parameter_info import NamedParameter
from ._buckets.retire import retire_names
from ._compression_report import report_no_effect
from ._exchange.bucket_maker import BucketMaker, ExchangedParameter
from ._exchange.deferred import why_not_deferred
from ._exchange.gradients import GradientExchange
from ._exchange.groups import ParameterGroups
from ._exchange.holders import sees_all_readers
from ._modes.local_modes import LocalModes, LocalParameter
from ._modes.mode_changes import ModeChange, at_fence, fence_period, is_move, mode_by, newest_move
from ._modes.own_states import make_equal
from ._modes.shard_optimizers import text_of, told_options, without_restore
from ._names import regrouped
from ._partial_step import steps_alone, without_hooks
from ._schedules import DEFAULT, Schedule, planned_as, schedule_of, wants_plan, without_forward
from ._state.residual_state import CompressionState
from ._takeover import busy_error, why_given_up
from ._tuning.attendance import Attendance
from ._tuning.autotune import tuner_of
from ._tuning.codec_trials import CodecTrials
from ._tuning.planning import Planning, StepPlan
from ._tuning.recording import recorder_of


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the user asked for, and which optimizer of this process it is."""

    passes: int
    bucket_bytes: int | None  # None: that of the schedule
    op: int
    process_set: ProcessSet
    compression: str | None
    rescale_residual: bool
    mode: str | None
    number: int = 0
    sparse: frozenset[torch.nn.Parameter] = frozenset()  # their gradients come sparse
    waits_in_backward: bool = True
    warns_of_differences: bool = False  # between replicas, where others raise
    warns_after_synchronize: bool = False  # in a step() outside skip_synchronize(), for Horovod's users
    check_every: int = 0  # steps from one comparison of the replicas to the next; 0: only the first step's
    reduce_in_float32: bool = False  # gradients of half precision
    schedule: Schedule = dataclasses.field(default_factory=lambda: schedule_of(DEFAULT))
    has_own_states: bool = False  # each rank has the optimizer's state of its own parameters only
    fresh_shards: bool = False  # shards take the parameters of ranks, not those of snapshots

    def is_sparse(self, parameter: torch.nn.Parameter, optimizer: Any) -> bool:
        """SparseAdam takes no other gradients."""
        return parameter in self.sparse or isinstance(optimizer, torch.optim.SparseAdam)


@dataclasses.dataclass
class ByHand:
    """What the user has called since the last step."""

    synchronized: bool = False
    skips: bool = False  # the next step takes the gradients as they are
    why_whole_step: str = ""  # what kept the last step from being left to the next forward pass


_Modes = tuple[str, ...]  # by parameter, in their order


class State:
    """What a distributed optimizer has besides its own attributes."""

    loaded = None  # its own states are those of all ranks

    def __init__(self, optimizer: torch.optim.Optimizer, settings: Settings) -> None:
        self.settings = settings
        # The optimizer holds this: references back are weak, so that both go with the last user of it.
        self._optimizer = weakref.ref(optimizer)
        self.plain_class = type(optimizer)
        self.inner_step = _inner_step(optimizer)
        self.by_hand = ByHand()
        self.steps = 0
        self.replicas_compared = False  # of the parameters that there are now
        self.fence_period = fence_period()
        self.parameters: list[tuple[NamedParameter, int]] = []  # and their groups
        self.changes: list[ModeChange] = []  # of modes, in force
        self.changes_seen = 0
        self.is_superseded = False  # by a newer wrapper of these parameters
        self.placement = 0  # of shards: the newest that was asked for
        self.attendance = Attendance(settings.process_set, settings.number)
        self.arrival: list[str] = []  # order of the ranks' gradients, once they have agreed on it
        self.rebuild_is_due = False
        self.plan: StepPlan | None = None  # of the coordinator
        self.planning: Planning | None = None
        self.planning_is_due = wants_plan(settings.schedule)
        self.codec_trials: CodecTrials | None = None
        self.codecs_are_due = True  # if some gradients leave theirs to the training
        self.recorder = recorder_of(self)
        self.tuner = tuner_of(settings.process_set, settings.number)
        self.parked: dict[_Modes, GradientExchange] = {}  # what they registered stays registered
        self._generations = itertools.count()
        self.exchange, self.local = self.make_exchange()
        self.rebuild_is_due = self.exchange.rebuilds

    @property
    def optimizer(self) -> Any:
        """That it belongs to; None when it is gone."""
        return self._optimizer()

    def make_exchange(self) -> tuple[GradientExchange, LocalModes]:
        """Who exchange, with no parameters yet; their buckets have names that are not in use."""
        asked = self.settings
        generation = next(self._generations)
        suffix = f"{asked.number or ''}{f'~{generation}' if generation else ''}"
        schedule = self._effective_schedule()
        maker = BucketMaker(
            asked.op, asked.process_set, asked.compression,
            asked.bucket_bytes or schedule.bucket_bytes, schedule,
            asked.rescale_residual, asked.reduce_in_float32, self.arrival, self.plan,
        )  # fmt: skip
        exchange = GradientExchange(
            maker, asked.passes, f"grad{suffix}", ParameterGroups(self._optimizer), self.placement,
            asked.waits_in_backward,
        )  # fmt: skip
        local = LocalModes(
            f"local{suffix}", asked.bucket_bytes or DEFAULT_BUCKET_BYTES, asked.process_set,
            asked.compression,
        )
        return exchange, local

    def _effective_schedule(self) -> Schedule:
        asked = self.settings.schedule
        if self.plan is not None:
            asked = planned_as(asked, self.plan.waits)
        return asked if self.may_wait_in_forward() else without_forward(asked)

    def may_wait_in_forward(self) -> bool:
        """Results may be left to the next forward pass."""
        return not self.why_not_in_forward()

    def why_not_in_forward(self) -> str:
        """Why no result is left to the next forward pass, whatever its mode; empty if some are."""
        asked = self.settings
        session = session_of(asked.process_set, "DistributedOptimizer")
        if not asked.waits_in_backward:
            return 'wait="step" was asked for'
        # On one node a result is there as soon as a sum is: nothing is left to the forward pass.
        if session.local_size == session.size:
            return "all ranks are on one node"
        if asked.schedule.name == "auto" and not sees_all_readers():
            return "this PyTorch cannot say who else reads a parameter"
        if asked.schedule.name == "auto" and _has_devices(self._optimizer()):
            return "parameters are on a GPU, where a CUDA graph would read them unseen"
        if not steps_alone(self.plain_class):
            return f"nothing says that {self.plain_class.__name__} steps each parameter by itself"
        return ""

    @property
    def is_released(self) -> bool:
        """It exchanges nothing any more."""
        return self.exchange.detached

    def holds(self, parameters: Set[int]) -> bool:
        """Whether one of these is its own; they are told by id()."""
        return any(id(parameter) in parameters for (_, parameter), _ in self.parameters)

    def give_up(self, who: str) -> None:
        """Another wrapper has these parameters from here on. Raises BusyError if gradients are in flight."""
        self.exchange.settle()
        if self.exchange.in_flight:
            raise busy_error()
        if not self.local.settled or self.exchange.has_undrained:
            warnings.warn(
                "gradbus: a newer DistributedOptimizer takes parameters over whose last exchange was not finished: "
                "call flush() of the earlier one first, on every rank",
                stacklevel=5,
            )
        why = why_given_up(who)
        self._retire_names()
        for exchange in (self.exchange, *self.parked.values()):
            exchange.release(why)
        self.parked.clear()
        self.local.release(why)
        self.is_superseded = True
        superseded(cast(Any, self._optimizer()))

    def _retire_names(self) -> None:
        if not self.exchange.detached:
            names = [self.replicas_name, f"{self.replicas_name}/each"]
            retire_names(names, self.settings.process_set)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self._retire_names()

    @property
    def replicas_name(self) -> str:
        """Of the operation that compares the ranks' parameters."""
        return f"replicas{self.settings.number or ''}"

    def modes(self, changes: Sequence[ModeChange]) -> _Modes:
        """By parameter, with these changes: what it would be exchanged in."""
        session = session_of(self.settings.process_set, "DistributedOptimizer")
        return tuple(
            session.mode_for(
                name, p.numel(), max(1, p.dim()), mode_by(changes, name, self.settings.mode)
            ).text
            for (name, p), _ in self.parameters
        )


def _has_devices(optimizer: Any) -> bool:
    return any(p.device.type != "cpu" for group in optimizer.param_groups for p in group["params"])


def _inner_step(optimizer: Any) -> Callable[..., Any]:
    counted = optimizer.__dict__.get("step")
    return counted if counted is not None else weakly(type(optimizer).step, optimizer)


def weakly(method: Callable[..., Any], owner: Any) -> Callable[..., Any]:
    """The method of this object, which it does not keep alive."""
    reference = weakref.ref(owner)

    def call(*arguments: Any, **options: Any) -> Any:
        return method(reference(), *arguments, **options)

    call.__wrapped__ = method  # type: ignore[attr-defined]
    return call


def is_plain_step(step: Any, plain: Any) -> bool:
    """Whether this is the step() of the class, or a learning-rate scheduler's wrapper of it, which only counts.

    The marks of such a wrapper do not tell: somebody's functools.wraps copies them.
    """
    made_here = getattr(step, "__globals__", None)
    known = made_here is globals() or made_here is vars(torch.optim.lr_scheduler)
    return known and without_hooks(step.__wrapped__) is without_hooks(plain.step)


def put_in_front(optimizer: Any, kind: type) -> Callable[..., Any] | None:
    """Makes the optimizer an instance of ``kind``, whose step() is called from now on.

    A scheduler made earlier has put a wrapper of the plain step, which counts, into the instance. Returns that
    wrapper, to be called in the place of the plain step.
    """
    counted: Callable[..., Any] | None = optimizer.__dict__.pop("step", None)
    optimizer.__class__ = kind
    if counted is not None:
        # The copied attributes tell the scheduler that its wrapper is still in place.
        optimizer.step = functools.update_wrapper(weakly(kind.step, optimizer), counted)  # type: ignore[attr-defined]
    return counted


def add(
    optimizer: Any,
    state: State,
    to: tuple[GradientExchange, LocalModes],
    parameters: Sequence[tuple[NamedParameter, int]],
    changes: Sequence[ModeChange],
) -> None:
    """Gives each parameter to those who exchange it in its mode."""
    session = session_of(state.settings.process_set, "DistributedOptimizer")
    report_no_effect(state.settings.compression, session, [pair for pair, _ in parameters])
    exchanged: list[ExchangedParameter] = []
    stepping: list[LocalParameter] = []
    for pair, group in parameters:
        name, parameter = pair
        wanted = mode_by(changes, name, state.settings.mode)
        mode = session.mode_for(name, parameter.numel(), max(1, parameter.dim()), wanted)
        if is_local(mode):
            stepping.append((pair, mode))
            continue
        text = text_of(mode, state.plain_class, optimizer.param_groups[group])
        told = told_options(mode, state.plain_class, optimizer.param_groups[group])
        if state.settings.fresh_shards:
            text = without_restore(text)
        on_shards = is_on_shards(mode)
        sparse = state.settings.is_sparse(parameter, optimizer)
        exchanged.append(ExchangedParameter(pair, group, text, on_shards, compensation_of(mode), sparse, told))
    to[0].add(exchanged)
    to[1].add(stepping)


def refuse_other_groups(state: State, pairs: Sequence[NamedParameter]) -> None:
    """Takes the newest group away again if it has parameters that are exchanged by the options of an earlier one."""
    names = {id(parameter): name for (name, parameter), _ in state.parameters}
    for _, parameter in pairs:
        on_shards = state.exchange.owns(parameter) and not state.exchange.steps_on(parameter)
        if id(parameter) in names and (state.settings.rescale_residual or on_shards):
            del state.optimizer.param_groups[-1]
            raise bad_argument(
                f"add_param_group: parameter '{names[id(parameter)]}' is exchanged already, by the options of its "
                "earlier group",
                "change the options of that group in its place, or make a new optimizer and call "
                "DistributedOptimizer() again",
            )


# Every rank comes to the same end: what refuses a mode refuses it to all.
_REFUSALS = (InvalidError, MismatchError, UnavailableError, ExhaustedError)


def take_up_changes(optimizer: Any) -> None:
    """At a fence: what `gradbus mode` has asked for, of the whole job, comes into force."""
    state: State = optimizer._gradbus
    if state.settings.process_set is not global_process_set:
        return
    changes = at_fence()
    new = changes[state.changes_seen :]
    state.placement = newest_move(changes)
    for change in new:
        if is_move(change):
            state.parked.clear()  # they are where they were
            continue
        try:
            _change_mode(optimizer, state, [*state.changes, change])
        except _REFUSALS as refusal:
            warnings.warn(
                f"gradbus mode: '{change[0]}' stays in the mode it has: {refusal}", stacklevel=3
            )
    state.changes_seen = len(changes)
    state.exchange.move(state.placement)


def _change_mode(optimizer: Any, state: State, changes: list[ModeChange]) -> None:
    """Others exchange from here on, in the modes of these changes. Nothing is under way."""
    before, after = state.modes(state.changes), state.modes(changes)
    if before != after:
        memory, outer = optimizer.compression_state(), optimizer.outer_state()
        parked = state.parked.get(after)
        exchange, local = state.make_exchange()
        if parked is None:
            fill(optimizer, state, (exchange, local), changes)
        try:
            _refuse_other_units(memory, state.local, local)
            _refuse_other_nodes(memory, state, before, after)
            leaving = [named for named, _ in state.parameters if state.local.owns(named[1]) > local.owns(named[1])]
            steps = make_equal(optimizer, leaving, state.settings.process_set, state.steps)
        except BaseException:
            _let_go(exchange, local)
            raise
        state.parked.pop(after, None)
        state.exchange.suspend()
        state.local.detach(True)
        if state.exchange.holds_nothing and not state.local.names:
            state.parked[before] = state.exchange
        state.exchange, state.local = parked or exchange, local
        if parked is not None:
            parked.resume()
        optimizer.load_compression_state(memory)
        state.local.take_over(outer)
        state.exchange.take_over(outer["mean_square"])
        state.steps, state.replicas_compared = steps, False
    state.changes = changes


def fill(
    optimizer: Any,
    state: State,
    to: tuple[GradientExchange, LocalModes],
    changes: Sequence[ModeChange],
) -> None:
    """All parameters; leaves no hooks behind when they are refused."""
    state.parameters = regrouped(optimizer, state.parameters)
    try:
        add(optimizer, state, to, state.parameters, changes)
        _refuse_half_a_search(optimizer, *to)
    except BaseException:
        _let_go(*to)
        raise
    _warn_of_early_waits(state, to[0])


def _warn_of_early_waits(state: State, exchange: GradientExchange) -> None:
    """Says so when a mode keeps a schedule from what it is for. ``stacklevel`` names who makes the optimizer."""
    schedule = state.settings.schedule
    why = why_not_deferred(exchange.buckets)
    if why and schedule.waits_in_forward and schedule.name != DEFAULT and state.may_wait_in_forward():
        warnings.warn(
            f"gradbus: schedule '{schedule.name}' leaves nothing to the next forward pass: {why}. "
            "optimizer.exchange_plan() says where ranks wait",
            stacklevel=6,
        )


def _let_go(exchange: GradientExchange, local: LocalModes) -> None:
    exchange.suspend()
    local.detach(True)


def _refuse_other_units(memory: CompressionState, before: LocalModes, after: LocalModes) -> None:
    """Refuses a change between modes whose residuals differ. A residual of gradients is none of
    parameters' differences, which contain a learning rate. A mean of parameters has no residual."""
    kept = {name for shares in memory.values() for name in shares}
    was_local, is_local_now = set(before.names), set(after.names)
    moved = kept & ((was_local - after.remembering) | (is_local_now - was_local))
    if moved:
        raise bad_argument(
            f"'{min(moved)}' is compressed, and its error feedback has no meaning in the other mode: one "
            "mode exchanges gradients, the other parameters or their mean",
            "change between modes of one kind, or start the job in the mode it is to have",
        )


def _refuse_other_nodes(
    memory: CompressionState, state: State, before: _Modes, after: _Modes
) -> None:
    """Refuses a change that would lose residuals. The residual of a sum on a shard belongs to no rank. The
    residual of a node's gradient is a step where shards step, and a part of a mean elsewhere."""
    kept = {name for shares in memory.values() for name in shares}
    for ((name, _), _), was, is_now in zip(state.parameters, before, after, strict=True):
        if name in kept and _place_of(was) != _place_of(is_now):
            raise bad_argument(
                f"'{name}' is compressed, and a part of its error feedback is on the shards, or the "
                "shards cannot use it",
                "start the job in the mode it is to have",
            )


def _place_of(mode: str) -> str:
    """Where gradients are added up, or stepped on."""
    name = mode.partition(",")[0]
    if not name.startswith("ps:"):
        return "agents"
    return "sums on shards" if name == "ps:sync" else "parameters on shards"


def _refuse_half_a_search(optimizer: Any, exchange: GradientExchange, local: LocalModes) -> None:
    if isinstance(optimizer, torch.optim.LBFGS) and exchange.buckets and local.names:
        raise bad_argument(
            "DistributedOptimizer: LBFGS searches for all parameters at once, and some of these are "
            "exchanged as gradients and some not",
            "give all of them one mode",
        )

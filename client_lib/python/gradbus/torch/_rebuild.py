"""New buckets for parameters that are exchanged already: in the order of their gradients, or by another schedule.

The new buckets are other tensors. They get what the compression of the earlier ones remembers, and the earlier
ones are unregistered, so their memory is reused. In mode ps:sync, a part of what compression remembers is on shards,
and no rank can read it. So buckets of such parameters stay as they are.
"""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from typing import Any

import torch

from .._data_movement import broadcast_
from .._errors import bad_argument
from .._process_sets import lowest_rank, session_of
from ._arguments import bucket_bytes_of
from ._buckets.gradient_buckets import Bucket
from ._buckets.retire import retire_names
from ._buckets.sums import note_sums_of, unchanged_sums
from ._exchange.deferred import why_not_deferred
from ._exchange.rounds import change_passes as change_passes_of
from ._exchangers import State, fill
from ._partial_step import steps_alone
from ._schedules import DEFAULT, Schedule, wants_plan
from ._tuning.attendance import RankHasCalledJoin
from ._tuning.codec_trials import CodecTrials, choices_of
from ._tuning.planning import Planning, StepPlan


def warn_of_whole_steps(plain: type, schedule: Schedule) -> None:
    """Says so when a schedule cannot do what it is for with this optimizer."""
    if schedule.waits_in_forward and schedule.name != DEFAULT and not steps_alone(plain):
        warnings.warn(
            f"gradbus: schedule '{schedule.name}' steps {plain.__name__} at the end of backward(), not in "
            "the next forward pass: nothing says that it steps each parameter by itself. If it does, give the class "
            "an attribute steps_each_parameter_alone = True",
            stacklevel=4,
        )


def adapt(optimizer: Any) -> None:
    """After each step: makes other buckets when it is time to, and no rank has joined."""
    state: State = optimizer._gradbus
    if _is_settled(state) or state.attendance.is_short:
        return
    with contextlib.suppress(RankHasCalledJoin):
        _adapt(optimizer, state)


def _is_settled(state: State) -> bool:
    return not (
        state.rebuild_is_due or state.planning_is_due or state.codecs_are_due
        or state.recorder or state.planning or state.tuner or state.codec_trials
    )  # fmt: skip


def resume(optimizer: Any) -> None:
    """All ranks have joined: what is measured begins anew, so that they count the same steps from here on."""
    state: State = optimizer._gradbus
    state.attendance.is_short = False
    state.replicas_compared |= state.steps > 0
    for search in (state.recorder, state.planning, state.tuner, state.codec_trials):
        if search is not None:
            search.restart()


def _adapt(optimizer: Any, state: State) -> None:
    if state.rebuild_is_due:
        _rebuild_in_order(optimizer)
    if state.recorder is not None:
        _record(state)
        return
    if state.planning_is_due:
        _begin_planning(state)
    if state.planning is not None:
        _advance_planning(optimizer, state)
    if state.tuner is not None:
        _advance_tuning(optimizer, state)
    elif state.planning is None:
        _advance_codecs(optimizer, state)


def _advance_tuning(optimizer: Any, state: State) -> None:
    assert state.tuner is not None
    if not _can_rebuild(state):
        warnings.warn(f"gradbus: nothing is tuned: {_why_not_rebuilt(state)}", stacklevel=5)
        state.tuner = None
        return
    state.tuner.stepped(optimizer)
    if state.tuner.is_done:
        state.tuner = None


def _advance_codecs(optimizer: Any, state: State) -> None:
    """Last of all: codecs are chosen for the buckets that stay."""
    if state.codecs_are_due:
        state.codecs_are_due = False
        session = session_of(state.settings.process_set, "DistributedOptimizer")
        if session.local_size < session.size and choices_of(state):
            state.codec_trials = CodecTrials(state, _apply_plan)
    if state.codec_trials is None:
        return
    if _exchanges_in_step(state) and not any(map(_is_summed_by_shards, state.exchange.buckets)):
        state.codec_trials.stepped(optimizer)
        return
    if not state.codec_trials.is_settled:
        warnings.warn("gradbus: no codec is chosen: some parameters are not in mode sync", stacklevel=5)
    _stop_codecs(state)


def _stop_codecs(state: State) -> None:
    if state.codec_trials is not None:
        state.codec_trials.stop()
        state.codec_trials = None


def _record(state: State) -> None:
    """First of all: nothing else measures meanwhile, or changes buckets."""
    assert state.recorder is not None
    if _exchanges_in_step(state):
        state.recorder.stepped()
    else:
        warnings.warn("gradbus: nothing is recorded: some parameters are not in mode sync", stacklevel=5)
        state.recorder.stop()
    if state.recorder.is_done:
        state.recorder = None


def _begin_planning(state: State) -> None:
    state.planning_is_due = False
    session = session_of(state.settings.process_set, "DistributedOptimizer")
    between_nodes = session.local_size < session.size
    if state.tuner is None and between_nodes and not _is_on_device(state) and _can_rebuild(state):
        state.planning = Planning(state, _apply_plan)


def _is_on_device(state: State) -> bool:
    return any(parameter.device.type != "cpu" for (_, parameter), _ in state.parameters)


def _advance_planning(optimizer: Any, state: State) -> None:
    assert state.planning is not None
    if not _can_rebuild(state) or state.planning.is_done:
        _stop_planning(state)
        return
    state.planning.stepped(optimizer)


def _stop_planning(state: State) -> None:
    if state.planning is not None:
        state.planning.stop()
        state.planning = None


def _apply_plan(optimizer: Any, plan: StepPlan | None) -> None:
    """On every rank, after the same step."""
    state: State = optimizer._gradbus
    before = state.plan
    state.plan = plan
    try:
        _rebuild(optimizer, state)
    except BaseException:
        state.plan = before
        raise


def _rebuild_in_order(optimizer: Any) -> None:
    """After the first step: buckets follow the order in which the lowest rank's gradients were ready.

    The backward pass of a model need not be the reverse of the order of its parameters.
    """
    state: State = optimizer._gradbus
    if not _can_rebuild(state):
        state.rebuild_is_due = False
        state.exchange.forget_arrival()
        return
    state.attendance.require_all()
    state.rebuild_is_due = False
    order = _order_of_lowest_rank(state)
    state.exchange.forget_arrival()
    state.arrival = [state.parameters[number][0][0] for number in order]
    if order and state.exchange.needs_rebuild(state.arrival):
        _rebuild(optimizer, state)


def _order_of_lowest_rank(state: State) -> list[int]:
    numbers = {name: number for number, ((name, _), _) in enumerate(state.parameters)}
    ours = [numbers[name] for name in state.exchange.arrival]
    padded = torch.tensor(ours + [-1] * (len(numbers) - len(ours)), dtype=torch.int32, device="cpu")
    name = f"arrival{state.settings.number or ''}"
    process_set = state.settings.process_set
    broadcast_(padded, lowest_rank(process_set), name, process_set=process_set)
    retire_names([name], process_set)
    return [number for number in padded.tolist() if number >= 0]


def change_schedule(optimizer: Any, schedule: Schedule, bucket_bytes: int | None) -> None:
    """On every rank, between steps."""
    state: State = optimizer._gradbus
    state.exchange.refuse_when_detached()
    if not _exchanges_in_step(state):
        raise bad_argument(
            f"change_schedule({schedule.name!r}): some parameters are not in mode sync",
            "change the schedule of a job whose gradients are all exchanged in mode sync",
        )
    if _remembered_by_shards(state):
        raise bad_argument(
            f"change_schedule({schedule.name!r}): {_why_not_rebuilt(state)}",
            "pass schedule= to DistributedOptimizer(), or call this before the first step",
        )
    warn_of_whole_steps(state.plain_class, schedule)
    before, plan = state.settings, state.plan
    _stop_planning(state)
    _stop_codecs(state)
    state.codecs_are_due = True
    if state.recorder is not None:
        state.recorder.stop()
        state.recorder = None
    state.plan = None
    size = bucket_bytes_of(bucket_bytes, schedule)
    state.settings = dataclasses.replace(before, schedule=schedule, bucket_bytes=size)
    try:
        _rebuild(optimizer, state)
    except BaseException:
        state.settings, state.plan = before, plan
        raise
    state.planning_is_due = wants_plan(schedule)
    state.rebuild_is_due = state.exchange.rebuilds and not state.arrival


def change_passes(optimizer: Any, passes: int) -> None:
    """On every rank, between steps: so many backward passes between two steps."""
    state: State = optimizer._gradbus
    state.exchange.refuse_when_detached()
    state.exchange.settle()
    for exchange in (state.exchange, *state.parked.values()):
        change_passes_of(exchange.rounds, passes)
    state.settings = dataclasses.replace(state.settings, passes=passes)


def plan_report(state: State) -> dict[str, Any]:
    """For DistributedOptimizer.exchange_plan()."""
    buckets = state.exchange.buckets
    return {
        "schedule": state.settings.schedule.name, "waits": _waits(state),
        "bucket_bytes": [bucket.flat.numel() * bucket.flat.element_size() for bucket in buckets],
        "compression": [bucket.spec[4] for bucket in buckets],
        "why": "; ".join(filter(None, (_wait_why(state), _plan_why(state), _codec_why(state), _shards_why(state)))),
        "is_final": not (
            state.rebuild_is_due or state.planning_is_due or state.planning or state.tuner or _chooses_codecs(state)
        ),
    }  # fmt: skip


def _waits(state: State) -> str:
    """Where ranks wait, which a mode or the last step may have decided."""
    on_ranks = [bucket for bucket in state.exchange.buckets if bucket.on_shards is None]
    if not state.settings.waits_in_backward or not on_ranks:
        return "step"
    return "backward" if _wait_why(state) else state.exchange.waits


def _wait_why(state: State) -> str:
    """What has kept results from the next forward pass, to which the schedule leaves them."""
    if not state.settings.schedule.waits_in_forward:
        return ""
    if state.plan is not None and state.plan.waits == "backward":
        return ""
    return (
        state.why_not_in_forward()
        or why_not_deferred(state.exchange.buckets)
        or _local_why(state)
        or state.by_hand.why_whole_step
    )


def _local_why(state: State) -> str:
    name = min(state.local.names, default="")
    return f"ranks exchange '{name}' itself, and not its gradient" if name else ""


def _plan_why(state: State) -> str:
    return state.plan.why if state.plan is not None else ""


def _codec_why(state: State) -> str:
    return state.codec_trials.why if state.codec_trials is not None else ""


def _chooses_codecs(state: State) -> bool:
    if state.codec_trials is not None:
        return not state.codec_trials.is_settled
    session = session_of(state.settings.process_set, "DistributedOptimizer")
    return state.codecs_are_due and session.local_size < session.size and bool(choices_of(state))


def _exchanges_in_step(state: State) -> bool:
    """Nothing but gradients of this step is exchanged, by all ranks at a time."""
    return state.exchange.is_synchronous and not state.local.names


def _is_summed_by_shards(bucket: Bucket) -> bool:
    return bucket.spec[-1].startswith("ps:sync")


def _remembered_by_shards(state: State) -> str:
    """A parameter for whose sums the shards have a residual; empty when there is none."""
    if state.exchange.rounds.exchanges == 0:
        return ""
    kept = (b for b in state.exchange.buckets if b.compressed and _is_summed_by_shards(b))
    return next((bucket.slots[0].name for bucket in kept), "")


def _can_rebuild(state: State) -> bool:
    return _exchanges_in_step(state) and not _remembered_by_shards(state)


def _why_not_rebuilt(state: State) -> str:
    """Empty when buckets may be replaced."""
    if not _exchanges_in_step(state):
        return "some parameters are not in mode sync"
    return _shards_why(state)


def _shards_why(state: State) -> str:
    name = _remembered_by_shards(state)
    if not name:
        return ""
    return f"'{name}' is compressed in mode ps:sync, and new buckets would lose the residual that the shards keep"


def _rebuild(optimizer: Any, state: State) -> None:
    state.exchange.settle()
    gradients: dict[torch.nn.Parameter, torch.Tensor | None] = {}
    memory = None
    if state.exchange.is_compressed:
        # What compression remembers is read where gradients lie.
        gradients = {p: None if p.grad is None else p.grad.clone() for (_, p), _ in state.parameters}
        memory = optimizer.compression_state()
    exchange, local = state.make_exchange()
    fill(optimizer, state, (exchange, local), state.changes)
    before = state.exchange
    sums = unchanged_sums(before.buckets)
    before.suspend()
    state.exchange, state.local = exchange, local
    state.parked.clear()
    before.release("its buckets were replaced")
    if memory is not None:
        optimizer.load_compression_state(memory)
    for parameter, gradient in gradients.items():
        parameter.grad = gradient
    note_sums_of(exchange.buckets, sums)

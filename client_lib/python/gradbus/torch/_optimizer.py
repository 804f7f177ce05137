"""DistributedOptimizer: any torch optimizer, stepping on the mean gradient of all ranks."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch

from .._errors import bad_argument
from .._ops import Average, Sum, checked_op
from .._optimizers import made
from .._process_sets import ProcessSet, global_process_set, lowest_rank, session_of
from .._session import current
from ._arguments import bucket_bytes_of, check_bucket_bytes, check_options, check_positive, sparse_of
from ._broadcast import broadcast_parameters, plain_name
from ._buckets.parameter_info import NamedParameter
from ._ddp import refuse_ddp
from ._exchange.rounds import refuse_changed_in_flight
from ._exchange.uncompiled import keep_out_of_compiler
from ._exchangers import Settings, State, add, fill, put_in_front, refuse_other_groups, take_up_changes
from ._modes.local_modes import OuterState, check_part
from ._modes.mode_changes import ModeChange
from ._names import all_named, numbered, parameters_of, regrouped
from ._numbers import keep_number, next_number
from ._onebit_adam import MomentumAdam
from ._own_zero_grad import zero_by_own
from ._rebuild import adapt, change_schedule, plan_report, warn_of_whole_steps
from ._replicas import compare_at_fence, compare_before_step
from ._schedules import schedule_of
from ._sharded.optimizer import ShardedOptimizerBase
from ._sharded.optimizer import shard as make_sharded
from ._state.optimizer_state import ShardState
from ._state.residual_state import CompressionState
from ._step import Closure, amp_scaling, step_inside, step_on_delayed, synchronize, warn_after_synchronize
from ._takeover import release_collected, take_over
from ._timeline import trace_now, trace_span
from ._tuning import codec_trials

# Torch 1 zeroes, torch 2 sets to None.
_SET_TO_NONE: bool = (
    inspect.signature(torch.optim.Optimizer.zero_grad).parameters["set_to_none"].default
)


if TYPE_CHECKING:
    _Optimizer = torch.optim.Optimizer  # what every instance is, too
else:
    _Optimizer = object


class DistributedOptimizerBase(_Optimizer):
    """What DistributedOptimizer() returns, for annotations and isinstance().

    These methods go in front of the optimizer's own; it is still of its own class as well.
    """

    _gradbus: State

    def synchronize(self) -> None:
        """Waits for the exchange. Every ``.grad`` is the result afterwards. step() calls it by itself.

        With ``wait="step"``, call it before you read or change gradients. With ``wait="backward"``, call it
        only if you made fewer backward passes than announced. Raises BusyError (a gradient was changed
        during the exchange), MismatchError, PeerLostError, TimeoutError (may be called again).
        """
        synchronize(self, is_step=False)
        self._gradbus.by_hand.synchronized = True

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """In this block step() uses the gradients as they are, without an exchange."""
        self._gradbus.by_hand.skips = True
        try:
            yield
        finally:
            self._gradbus.by_hand.skips = False

    def step(self, closure: Closure | None = None) -> Any:
        """Calls synchronize(), then makes one step of the wrapped optimizer. With a closure, each evaluation
        is followed by synchronize(). Then the modes that exchange parameters (diloco, ...) do their work.

        Raises what synchronize() does, and MismatchError when the ranks' parameters differ: see
        ``check_every``.
        """
        state = self._gradbus
        warn_after_synchronize(state)
        state.local.before_step()
        if closure is None and not state.settings.waits_in_backward:
            refuse_changed_in_flight(state.exchange.rounds)  # before it waits for others, whom the change may end
        compare_before_step(state)
        traced = trace_now()
        try:
            result = step_inside(self, closure)
        except BaseException as error:
            if not state.exchange.deferred.aborted.wait:  # else step() can be called again
                if isinstance(error, KeyboardInterrupt):
                    state.exchange.deferred.aborted.record_partial_step(error)
                state.exchange.end_round(is_traced=traced != 0)
            raise
        state.exchange.end_round(is_traced=traced != 0)
        state.local.stepped()
        state.steps += 1
        trace_span("step", traced)
        adapt(self)
        if state.fence_period and state.steps % state.fence_period == 0:
            self.flush()
        return result

    step.hooked = True  # type: ignore[attr-defined]  # torch's step hooks run in the inner step

    def load_state_dict(self, state_dict: Any) -> None:
        """As torch's."""
        self._gradbus.exchange.settle()
        super().load_state_dict(state_dict)

    def zero_grad(self, set_to_none: bool = _SET_TO_NONE) -> None:
        """Zeroes the gradients. An exchanged ``.grad`` stays in its bucket for both values of ``set_to_none``.

        Frozen parameters get None or zeros, as in one process. Raises BusyError if shards step on what they have got.
        """
        exchange = self._gradbus.exchange
        exchange.zero(set_to_none)
        if zero_by_own(super().zero_grad, set_to_none):
            exchange.zero(set_to_none)  # every .grad is back in its bucket
        owned = exchange.owned
        parameters = parameters_of(self)
        if owned.issuperset(map(id, parameters)):
            return
        for parameter in parameters:
            if id(parameter) not in owned and parameter.grad is not None:
                if set_to_none:
                    parameter.grad = None
                else:
                    parameter.grad.detach_().zero_()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As torch's. Every rank must add the same group; its gradients are exchanged from now on.

        Parameters of a group that was removed by hand may be added again, and keep their buckets. Raises InvalidError
        if shards step on them or ``rescale_residual`` was asked for, which know them by the earlier group.
        """
        state = self._gradbus
        state.exchange.refuse_when_detached()
        state.exchange.settle()
        super().add_param_group(param_group)
        number, held = len(self.param_groups) - 1, _ids(state)
        pairs = numbered(self.param_groups[number], number)
        added = [(pair, number) for pair in pairs if id(pair[1]) not in held]
        if len(added) < len(pairs):
            refuse_other_groups(state, pairs)
        if added or not pairs:
            add(self, state, (state.exchange, state.local), added, state.changes)
        state.parameters = regrouped(self, state.parameters) + added
        who = f"add_param_group() of another DistributedOptimizer ({plain_name(self)})"
        take_over(state, _ids(state), who)
        state.parked.clear()  # they lack these
        state.replicas_compared = False

    def flush(self) -> int:
        """Ends all exchanges in flight, so that all ranks have the same parameters, bit for bit. Returns
        how many steps and exchanges that took.

        Every rank calls it before an evaluation, a checkpoint and the end. With
        ``mode="delayed:k=2"`` the last two means of gradients have not been used yet: flush() steps on
        them. Training then restarts with k zero steps, as at the beginning. With ``"localsgd"`` and
        ``"diloco"`` it makes an outer step on the inner steps since the last one. With ``"averaging"``
        and ``"gossip"`` it takes the mean of the parameters. With ``"sync"`` there is nothing to do.
        flush() is a fence, so changes that ``gradbus mode`` requested take effect here.

        Raises BusyError between backward() and step(), PeerLostError, TimeoutError (may be called
        again).
        """
        state = self._gradbus
        steps = step_on_delayed(self)
        steps += state.exchange.pull() + state.local.flush()
        compare_at_fence(state)
        take_up_changes(self)
        return steps

    def staleness(self) -> dict[str, int]:
        """By parameter: the age in steps of the gradient that the last step used; -1 means zeros.

        0 where parameters are exchanged (averaging, gossip, ...), because the gradient is this rank's own.
        """
        state = self._gradbus
        return {**state.exchange.staleness(), **dict.fromkeys(state.local.names, 0)}

    def change_schedule(self, schedule: str, bucket_bytes: int | None = None) -> None:
        """Exchanges gradients by another schedule from here on: see ``schedule=`` of DistributedOptimizer().

        All ranks call it with the same arguments, between step() and backward(). What compression remembers
        stays. The earlier buckets' memory is free for others. Raises InvalidError (an unknown schedule, a mode
        other than sync), BusyError between backward() and step().
        """
        check_bucket_bytes(bucket_bytes)
        change_schedule(self, schedule_of(schedule), bucket_bytes)

    def exchange_plan(self) -> dict[str, Any]:
        """How gradients are exchanged now: ``{"schedule", "waits", "bucket_bytes", "compression", "why", "is_final"}``.

        ``waits`` is where: ``"backward"`` (its end), ``"step"``, ``"layer"`` or ``"split"`` (the next forward pass);
        ``why`` has what keeps it from the schedule's place. The lists have an entry for each bucket, as backward
        fills them. ``is_final``: buckets stay. They may change in the first step, with a plan and ``--autotune``.
        """
        return plan_report(self._gradbus)

    def report_loss(self, loss: float | torch.Tensor) -> None:
        """Reports this rank's loss of a step for the rule ``gradbus run --loss-percent``. If losses jump or are
        not finite, the job returns to mode ``sync`` at the next fence. ``gradbus status --json`` shows them.

        It does not wait. Without reports the rule does nothing. A tensor must have one element.
        """
        current().report_loss(float(loss))

    def exposed_communication(self) -> float:
        """Seconds in which this rank has waited for others, since it joined the job.

        That is communication which computation did not hide. Two calls around a part of the training give
        the figure of that part. ``gradbus timeline`` shows it for each tensor.
        """
        return current().waited_ns() / 1e9

    def modes(self) -> dict[str, str]:
        """By parameter: its current mode, which ``gradbus mode`` may have changed."""
        state = self._gradbus
        names = (name for (name, _), _ in state.parameters)
        return dict(zip(names, state.modes(state.changes)))

    def outer_state(self) -> OuterState:
        """The state of modes that is not in the optimizer's own state, for a checkpoint.

        ``{"global": {name: tensor}, "momentum": {name: tensor}, "mean_square": {name: tensor}}``. For
        localsgd and diloco: the global copy of each parameter, and the outer momentum. Both are empty
        before the first step. For delayed with dc_decay: the mean of squared gradients. It is the same
        on every rank, so one file is enough. Call it after flush(), because gradients in flight are not
        in it. Raises BusyError if ranks have stepped on their own since.
        """
        squares = self._gradbus.exchange.mean_squares
        return {
            **self._gradbus.local.outer_state(),
            "mean_square": {name: mean.clone() for name, mean in squares.items()},
        }

    def load_outer_state(self, state: OuterState) -> None:
        """Restores outer_state() on all ranks; the parameters become the global copies.

        Parts that the state lacks, because it is of another mode, start anew. Raises InvalidError (a name or
        shape of another model), and BusyError as outer_state() does.
        """
        exchange, local = self._gradbus.exchange, self._gradbus.local
        squares = state.get("mean_square", {})
        if squares:
            shapes = {name: mean.shape for name, mean in exchange.mean_squares.items()}
            check_part("mean_square", squares, shapes)
        local.load_outer_state({part: state[part] for part in state if part != "mean_square"})
        exchange.take_over(squares)

    def shard_state(self) -> ShardState:
        """The optimizer state on shards, for a checkpoint: momenta, moments and counts of steps, by parameter.

        Rank 0 gets all of it, other ranks get {}. All ranks call it after flush() and before the next step.
        Parameters whose optimizer has no state are not in it. Raises BusyError between backward() and step().
        """
        return self._gradbus.exchange.shard_state()

    def load_shard_state(self, state: ShardState) -> None:
        """Restores shard_state(); the parameters of rank 0 become those of the shards, also with ``{}``.

        All ranks call it, also after parameters were written by hand; the state of rank 0 counts. A parameter whose
        shards use another optimizer starts anew, with a warning. Raises InvalidError (a name or shape of another
        model), BusyError as shard_state().
        """
        self._gradbus.exchange.load_shard_state(state)

    def compression_state(self) -> CompressionState:
        """This rank's share of the residual state (error feedback), for a checkpoint.

        ``{"residual": {name: tensor}, "momentum": {name: tensor}, "rounds": {name: tensor}}`` of the compressed
        parameters, and with ``rescale_residual`` the last ``"learning_rate"``. All ranks call it after step() and save
        a file each: the shares of ``"residual"`` and ``"momentum"`` add up to the state of the job. In modes with
        results in flight, call flush() first. Exchanged gradients become zeros. Raises BusyError between backward()
        and step().
        """
        local = self._gradbus.local.compression_state()
        state = self._gradbus.exchange.compression_state()
        return {part: {**state.get(part, {}), **local.get(part, {})} for part in {**state, **local}}

    def load_compression_state(self, state: CompressionState) -> None:
        """Restores a share on all ranks, and replaces the current residual state.

        For another number of ranks see ``reshard_compression_state``. On a job of one node, or for
        parameters that are not compressed now, the residual is added to the next gradient. Raises
        InvalidError (a name or shape of another model), BusyError between backward() and step().
        """
        names = set(self._gradbus.local.names)
        self._gradbus.exchange.load_compression_state(_parts_of(state, lambda n: n not in names))
        self._gradbus.local.load_compression_state(_parts_of(state, lambda n: n in names))

    def __del__(self) -> None:
        # Parameters may live on, and must have the last step.
        with contextlib.suppress(Exception):
            release_collected(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copied or unpickled optimizer is a plain one: hooks and shared memory stay here."""
        plain = _plain_class(type(self))
        self._gradbus.exchange.settle()
        state = {key: self.__dict__[key] for key in ("defaults", "state", "param_groups")}
        return (plain.__new__, (plain,), state)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return self.__reduce__()


def _plain_class(distributed: type) -> type:
    bases = distributed.__mro__
    return bases[bases.index(DistributedOptimizerBase) + 1]


@functools.cache
def _distributed_class(plain: type) -> type:
    keep_out_of_compiler(DistributedOptimizerBase)
    names = {"__module__": __name__, "_plain_name": plain.__name__, "_step_supports_amp_scaling": amp_scaling}
    return type(f"Distributed{plain.__name__}", (DistributedOptimizerBase, plain), names)


def _parts_of(state: CompressionState, wanted: Callable[[str], bool]) -> CompressionState:
    return {
        part: {name: share for name, share in shares.items() if wanted(name)}
        for part, shares in state.items()
    }


def _ids(state: State) -> set[int]:
    return {id(parameter) for (_, parameter), _ in state.parameters}


def _check_arguments(optimizer: Any, backward_passes_per_step: int, bucket_bytes: int | None) -> None:
    if not isinstance(optimizer, torch.optim.Optimizer):
        kind = type(optimizer).__name__
        raise bad_argument(f"DistributedOptimizer: {kind} is no torch optimizer", "pass a torch.optim.Optimizer")
    plain = isinstance(optimizer, DistributedOptimizerBase) and not optimizer._gradbus.exchange.detached
    if plain or isinstance(optimizer, (ShardedOptimizerBase, MomentumAdam)):
        raise bad_argument("DistributedOptimizer: already distributed", "wrap an optimizer once")
    check_positive("backward_passes_per_step", backward_passes_per_step)
    check_bucket_bytes(bucket_bytes)


def DistributedOptimizer(  # used like a class, hence its name
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, Any]] | None = None,
    backward_passes_per_step: int = 1,
    bucket_bytes: int | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    compression: str | None = None,
    rescale_residual: bool = False,
    mode: str | None = None,
    sparse_parameters: Iterable[torch.nn.Parameter] = (),
    wait: str = "backward",
    broadcast: bool = False,
    check_every: int = 0,
    reduce_dtype: torch.dtype | None = None,
    schedule: str | None = None,
    replicas: str = "equal",
    shard: bool = False,
) -> DistributedOptimizerBase:
    """Makes the optimizer step on gradients that are averaged (or summed) over all ranks.

    It returns the same object, of a subclass of its class, so schedulers and references stay valid. Gradients live
    in shared memory and are exchanged while backward still runs. After backward(), ``.grad`` is the result: clip it
    as in one process. All ranks wrap the same parameters in the same order, and make as many passes between steps.

    Args:
        optimizer: any torch.optim.Optimizer over parameters of float32, float64, float16, bfloat16,
            complex64 or complex128 (pairs of reals), on the CPU or one GPU; frozen ones are left alone.
        named_parameters: ``model.named_parameters()``, for readable errors.
        backward_passes_per_step: backward() calls whose gradients add up locally, before their exchange.
        bucket_bytes: of each piece (the first: 1 MiB). None: HOROVOD_FUSION_THRESHOLD, else that of the schedule.
        op: gradbus.Average or gradbus.Sum.
        process_set: the ranks that share this model; call this on members only.
        compression: between nodes, ``"topk:ratio=0.01"``, or ``"auto"`` or a list: what pays. None: the job's policy.
        rescale_residual: a new learning rate scales the residual by old / new, as plain SGD wants it.
        mode: ``"sync"``, ``"delayed:k=1"``, ... (docs/concepts/modes.md). None: the job's policy decides.
        sparse_parameters: those with sparse gradients (and all of a SparseAdam), whose rows are exchanged. Other
            sparse gradients are made dense, with a warning.
        wait: ``"backward"``: the last backward() before a step waits, as in DDP. ``"step"``: step() waits, and
            you call synchronize() before you change gradients. Modes in which shards step always wait in step().
        broadcast: gives all ranks the parameters of the lowest one (broadcast_parameters(model): buffers, too).
        check_every: the first step compares hashes of parameters, options and optimizer state over all ranks. Each
            ``check_every``-th does so without the state; in modes other than sync and delayed, flush(). 0: none.
        reduce_dtype: ``torch.float32`` sums float16 and bfloat16 gradients (in host memory) without rounding.
        schedule: ``"wfbp"``, ``"ddp"``, ``"fusion"``, ``"bytescheduler"``, ``"dear"`` or ``"auto"``
            (docs/concepts/schedules.md). None: that of GRADBUS_SCHEDULE, else ``"auto"``. ``"dear:budget=16M"``
            limits the bytes in flight between nodes.
        replicas: ``"equal"``: parameters that differ raise MismatchError. ``"any"``: they are a warning.
        shard: each rank keeps the optimizer's state of its share (docs/how-to/shard-the-optimizer.md).

    A parameter that no rank used keeps None and does not move; with compression, a delay or shards it is zero.
    One that is frozen later keeps its ``.grad``; unfreeze it at any time. ``.grad`` may be replaced between steps.

    Raises InvalidError (arguments), MismatchError (different models), ExhaustedError. From backward(): BusyError
    (a gradient was changed in flight), MismatchError (different numbers of passes), PeerLostError, TimeoutError.
    From step(): MismatchError naming the first parameter that differs.
    """
    _check_arguments(optimizer, backward_passes_per_step, bucket_bytes)
    chosen = schedule_of(schedule)
    check_options(wait, check_every, reduce_dtype, replicas)
    if shard:
        options = (compression, mode, list(sparse_parameters), schedule, reduce_dtype)
        return make_sharded(optimizer, named_parameters, backward_passes_per_step, op, process_set, broadcast, options)
    settings = Settings(
        backward_passes_per_step, bucket_bytes_of(bucket_bytes, chosen), op, process_set, compression,
        rescale_residual, mode, waits_in_backward=wait == "backward", check_every=check_every,
        warns_of_differences=replicas == "any", reduce_in_float32=reduce_dtype is not None, schedule=chosen,
    )  # fmt: skip
    warn_of_whole_steps(type(optimizer), chosen)
    _distribute(optimizer, settings, named_parameters, sparse_parameters, broadcast)
    return cast(DistributedOptimizerBase, optimizer)


def _distribute(
    optimizer: torch.optim.Optimizer,
    settings: Settings,
    named_parameters: Iterable[tuple[str, Any]] | None,
    sparse_parameters: Iterable[torch.nn.Parameter],
    broadcast: bool,
) -> None:
    if isinstance(optimizer, DistributedOptimizerBase):
        _take_away(optimizer)  # of a session that was shut down
    process_set = settings.process_set
    named = all_named(optimizer, named_parameters)
    session_of(process_set, "DistributedOptimizer")  # refuse early when init() is missing
    refuse_ddp(named)
    settings = dataclasses.replace(
        settings,
        op=checked_op(settings.op, "DistributedOptimizer", (Average, Sum)),
        compression=codec_trials.checked(settings.compression, process_set),
        sparse=sparse_of(sparse_parameters, named),
    )
    if broadcast:
        broadcast_parameters(named, lowest_rank(process_set), process_set)
    _wrap(optimizer, named, settings)


def _wrap(optimizer: torch.optim.Optimizer, named: list[NamedParameter], settings: Settings) -> None:
    # A number comes last: a rank whose arguments were refused calls again.
    settings = dataclasses.replace(settings, number=next_number(settings.process_set))
    state = State(optimizer, settings)
    state.parameters = regrouped(optimizer, [(pair, 0) for pair in named])
    take_over(state, _ids(state), f"a newer DistributedOptimizer ({plain_name(optimizer)})")
    fill(optimizer, state, (state.exchange, state.local), [])
    _put_in_front(optimizer, state)


def needs_reattaching(optimizer: Any) -> bool:
    """Its session was shut down."""
    state = optimizer._gradbus
    return bool(state.exchange.detached) and not state.is_superseded


def reattach(optimizer: Any, steps: int, changes: Sequence[ModeChange], fresh_shards: bool) -> None:
    """As DistributedOptimizer() in the session there is now, with the arguments and names it had.

    Every rank goes on from the same ``steps`` and the same ``changes`` of modes. ``fresh_shards``:
    the parameters are these, whatever snapshots shards have. Raises what DistributedOptimizer() does;
    it can be called again then, in another session.
    """
    old = optimizer._gradbus
    keep_number(old.settings.process_set, old.settings.number)
    _take_away(optimizer)
    state = State(optimizer, dataclasses.replace(old.settings, fresh_shards=fresh_shards))
    state.parameters, state.steps, state.changes = old.parameters, steps, list(changes)
    _put_in_front(optimizer, state)
    fill(optimizer, state, (state.exchange, state.local), state.changes)


def _put_in_front(optimizer: Any, state: State) -> None:
    put_in_front(optimizer, _distributed_class(type(optimizer)))  # type: ignore[arg-type,unused-ignore]
    optimizer._gradbus = state
    made(optimizer)


def _take_away(optimizer: Any) -> None:
    state = optimizer.__dict__.pop("_gradbus")
    optimizer.__class__ = _plain_class(type(optimizer))
    if "step" in optimizer.__dict__:
        optimizer.step = state.inner_step

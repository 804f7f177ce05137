"""Modes in which parameter-server shards hold the parameters, for a front end that hands over NumPy arrays.

In each step a front end hands over the gradients and the parameters that they were computed with, and gets the
parameters as the shards have them. The step of its own optimizer does not count for these. The mode says how shards
step. The first step brings the lowest rank's parameters to the shards.

Invariant: between two steps, a rank's parameters are what it got last. So what somebody else writes to them is an
error: the shards would not know it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .._errors import InvalidError, bad_argument
from .._gradients import Exchanges, Gradient, Settings, broadcast_arrays, info_of, mode_of
from .._layout import DTYPES, layout_option, plan_buckets
from .._objects import compare_lists
from .._process_sets import lowest_rank, session_of
from .arrays import ArrayBucket, described, guard_of_parameters, slots_of
from .kinds import is_on_shards, said_in

_FLOAT32 = DTYPES["float32"][1]
# Optax adds differences to parameters, so they are off by a rounding: of the largest element, at most twice 2^-24.
_ROUNDING = 1e-6


class _Bucket:
    """A tensor whose parameters shards hold."""

    def __init__(self, bucket: ArrayBucket) -> None:
        self.bucket = bucket
        self._taken = bucket.private()  # what this rank got last
        self._rounding = [0.0] * len(bucket.slots)  # by which a parameter may differ from it

    def start_setting(self) -> None:
        """The first round brings the parameters."""
        self.bucket.copy_parameters(self.bucket.flat)
        self.bucket.hand_over()

    def start_step(self, gradients: Sequence[Any], rate: float | None) -> None:
        """``rate``: None: the mode's."""
        self.bucket.flat[...] = 0  # gaps between parameters, too
        for slot in self.bucket.slots:
            np.copyto(slot.of(self.bucket.flat), gradients[slot.number])
        if rate is not None:
            self.bucket.core.set_learning_rate(rate)
        self.bucket.hand_over()

    def start_writing(self, brings: bool) -> None:
        """Replaces what the shards have. ``brings``: by the parameters of this rank; all others bring nothing."""
        self.bucket.flat[...] = -0.0  # which added to anything leaves its bits
        if brings:
            self.bucket.copy_parameters(self.bucket.flat)
        self.bucket.core.start_write_optimizer_state(0)

    def take(self) -> None:
        """Waits for what the shards have, which becomes the parameters."""
        self.bucket.wait()
        for number, slot in enumerate(self.bucket.slots):
            before, now = self.bucket.parameter(slot), slot.of(self.bucket.flat)
            self._rounding[number] = _ROUNDING * max(_largest(before), _largest(now))
        self._taken[...] = self.bucket.flat
        self.bucket.set_parameters()

    def refuse_writes(self) -> None:
        """Raises InvalidError if a parameter is not what this rank got last."""
        for slot, rounding in zip(self.bucket.slots, self._rounding):
            with np.errstate(invalid="ignore"):  # infinities
                off = _largest(self.bucket.parameter(slot) - slot.of(self._taken))
            if off > rounding:
                raise _written_error(slot.name)


def _largest(array: Any) -> float:
    return float(np.abs(array).max(initial=0))


def _written_error(name: str) -> InvalidError:
    return bad_argument(
        f"parameter '{name}' was written to after the last step, and shards hold it: the next step would lose it",
        "call flush(), which gives ranks the parameters of the shards, or make a new optimizer on all ranks, which "
        "gives shards those of rank 0; to write in every step, use a mode in which ranks step",
    )


class ArrayShards:
    """The parameters of one optimizer. All ranks make one with the same arguments; it waits for them.

    One thread at a time. After an error, each later call raises BusyError: shards may have stepped.
    """

    def __init__(self, parameters: Sequence[Gradient], prefix: str, settings: Settings) -> None:
        self._session = session_of(settings.process_set, prefix)
        self._process_set = settings.process_set
        self._parameters = parameters
        self._prefix = f"{prefix}/shards"
        # Tensors are registered by their numbers of elements, which two models may share.
        compare_lists([*map(str, parameters)], "parameter", self._prefix, settings.process_set)
        self._arrays = [np.empty(one.shape, np.float32) for one in parameters]
        self._guard = guard_of_parameters(prefix)
        self._is_set = False  # the shards have the parameters
        self._buckets = self._register(parameters, settings)

    def _register(self, parameters: Sequence[Gradient], settings: Settings) -> list[_Bucket]:
        infos = [info_of(one, settings, self._session) for one in parameters]
        plans = plan_buckets(infos, settings.bucket_bytes, self._prefix)
        layouts = [
            layout_option([(parameters[slot.index].name, parameters[slot.index].shape) for slot in plan.slots])
            for plan in plans
        ]
        specs = [
            (plan.name, plan.count, _FLOAT32, int(settings.op), plan.compression, plan.columns, plan.mode + layout)
            for plan, layout in zip(plans, layouts)
        ]
        numbers = range(len(parameters))
        return [
            _Bucket(ArrayBucket(core, slots_of(plan, numbers, parameters), plan.dtype, self._arrays))
            for core, plan in zip(self._session.register_buckets(specs), plans)
        ]

    def step(
        self, gradients: Sequence[Any], parameters: Sequence[Any], rate: float | None, results: Sequence[Any]
    ) -> None:
        """``rate``: of this step; None: the mode's. ``results`` may be ``gradients`` or ``parameters`` themselves.

        Raises InvalidError, before anything is sent, for parameters that are not the results of the last step.
        """
        if rate is not None and not 0 <= rate < math.inf:
            raise bad_argument(f"learning rate {rate}", "pass a number that is at least 0")
        self._run(parameters, results, lambda: self._step(gradients, rate), checks=True)

    def flush(self, parameters: Sequence[Any], results: Sequence[Any]) -> None:
        """``results``: those of the shards after all ranks' steps, the same bits on all ranks, which all call it."""
        self._run(parameters, results, self._flush)

    def restart(self, parameters: Sequence[Any]) -> None:
        """The lowest rank's parameters replace those of the shards. All ranks have the same and call it."""
        if self._is_set:
            self._run(parameters, (), self._replace)

    def _run(
        self, given: Sequence[Any], results: Sequence[Any], exchange: Callable[[], None], checks: bool = False
    ) -> None:
        with self._guard.turn():
            for own, array in zip(self._arrays, given):
                np.copyto(own, np.asarray(array))
            if checks and self._is_set:
                for bucket in self._buckets:
                    bucket.refuse_writes()
            with self._guard.exchange():
                exchange()
            for own, result in zip(self._arrays, results):
                np.copyto(result, own)

    def _step(self, gradients: Sequence[Any], rate: float | None) -> None:
        self._set()
        for bucket in self._buckets:
            bucket.start_step(gradients, rate)
        self._take()

    def _set(self) -> None:
        if self._is_set:
            return
        # Ranks of one node must bring the same.
        named = [(one.name, array) for one, array in zip(self._parameters, self._arrays)]
        root = lowest_rank(self._process_set)
        for own, array in zip(self._arrays, broadcast_arrays(f"{self._prefix}/first", named, root, self._process_set)):
            np.copyto(own, array)
        for bucket in self._buckets:
            bucket.start_setting()
        self._take()
        self._is_set = True

    def _flush(self) -> None:
        self._set()
        # Once to say that this rank makes no steps for now, so that nobody waits for it; once more when that is true
        # of all, so that all get the same.
        self._pull()
        self._session.barrier()
        self._pull()

    def _pull(self) -> None:
        for bucket in self._buckets:
            bucket.bucket.core.start_pull()
        self._take()

    def _replace(self) -> None:
        self._session.barrier()  # nobody steps any more
        for bucket in self._buckets:
            bucket.start_writing(self._session.rank == 0)
        for bucket in self._buckets:
            bucket.bucket.wait()
        self._session.barrier()  # a step before the last part is there would be made without it
        for bucket in self._buckets:
            bucket.bucket.core.start_read_optimizer_state(0)
        self._take()

    def _take(self) -> None:
        for bucket in self._buckets:
            bucket.take()


def _find_on_shards(parameters: Sequence[Gradient], prefix: str, settings: Settings) -> dict[int, str]:
    session = session_of(settings.process_set, prefix)
    modes = {number: mode_of(one, settings, session) for number, one in enumerate(parameters)}
    return {number: mode.text for number, mode in modes.items() if is_on_shards(mode)}


_SHARDS: Exchanges[ArrayShards] = Exchanges(ArrayShards)
_ON_SHARDS: Exchanges[dict[int, str]] = Exchanges(_find_on_shards)  # policies have many rules, and steps ask each time


def parameters_on_shards(parameters: Sequence[Gradient], prefix: str, settings: Settings) -> dict[int, str]:
    """The numbers of those on shards, and the texts of their modes. Raises ClosedError before init()."""
    return _ON_SHARDS.of(prefix, settings, parameters)


def step_on_shards(
    gradients: Sequence[tuple[str, Any]],
    parameters: Sequence[Any],
    rate: float | None,
    prefix: str,
    settings: Settings,
    results: Sequence[Any],
) -> None:
    """ArrayShards.step() of the parameters of parameters_on_shards(), whose names come with the gradients."""
    shards = _SHARDS.of(prefix, settings, described(gradients))
    shards.step([array for _, array in gradients], parameters, rate, results)


def flush_shards(named: Sequence[tuple[str, Any]], prefix: str, settings: Settings, results: Sequence[Any]) -> None:
    """``named``: the parameters of parameters_on_shards(). Writes those of the shards to ``results``."""
    _SHARDS.of(prefix, settings, described(named)).flush([array for _, array in named], results)


def restart_shards(named: Sequence[tuple[str, Any]], prefix: str, settings: Settings) -> None:
    """``named``: the parameters of parameters_on_shards(), the same on all ranks. The shards go on from them."""
    _SHARDS.of(prefix, settings, described(named)).restart([array for _, array in named])


def name_optimizer_error(what: str, text: str, rate: str = "") -> InvalidError:
    """``what``: why the mode has to say how shards step; ``rate``: an option that it must have, too."""
    said = said_in(text)
    missing = [option for option in ("optimizer=adam", rate) if option and option.partition("=")[0] not in said]
    return bad_argument(
        f"{what} (mode {text})",
        f"say in the mode how shards step: {','.join([text, *missing])}; optimizers are sgd, adam, adamw, adagrad, "
        "lamb, with momentum=, weight_decay=, beta1=, beta2=, eps=",
    )

"""Modes in which ranks step on their own, for parameters that a front end hands over as NumPy arrays.

The arithmetic is that of torch/_modes/outer_bucket.py. Elements travel as float32, those of float64 as float64, so that
the mean of half-precision parameters is rounded once, when it is put back.

A front end calls before_step() and after_step() around each step of its optimizer. flush() makes replicas equal.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._gradients import Exchanges, Gradient, Settings, bfloat16, broadcast_arrays, info_of, mode_of
from .._layout import DTYPES, BucketPlan, ParameterInfo, plan_buckets
from .._ops import Average
from .._process_sets import lowest_rank, session_of
from .._watch import wait_for
from .averaging import Averaging
from .exchange_guard import ExchangeGuard
from .groups import Groups, by_mode
from .kinds import is_local
from .local_steps import LocalSteps
from .memory import memory_of

if TYPE_CHECKING:
    from .. import _core


def guard_of_parameters(prefix: str) -> ExchangeGuard:
    """For the exchanges of the parameters of one optimizer."""
    return ExchangeGuard(
        f"an exchange of the parameters of '{prefix}' was given up",
        "broadcast the parameters and make a new optimizer",
    )


class ArraySlot:
    """A parameter's place in a bucket, and in private vectors of the same layout."""

    def __init__(self, name: str, number: int, shape: tuple[int, ...], offset: int, count: int) -> None:
        self.name = name
        self.number = number  # of the parameter
        self._shape = shape
        self._range = slice(offset, offset + count)

    def of(self, vector: Any) -> Any:
        """This parameter's elements, in its shape."""
        return vector[self._range].reshape(self._shape)


def slots_of(plan: BucketPlan, numbers: Sequence[int], parameters: Sequence[Gradient]) -> list[ArraySlot]:
    """``numbers``: those of the planned ones among the parameters."""
    slots = []
    for place in plan.slots:
        number = numbers[place.index]
        one = parameters[number]
        slots.append(ArraySlot(one.name, number, one.shape, place.offset, place.count))
    return slots


class ArrayBucket:
    """A registered tensor of parameters. ``arrays``: all parameters of the optimizer as they are now."""

    def __init__(self, core: _core.Bucket, slots: Sequence[ArraySlot], dtype: str, arrays: list[Any]) -> None:
        self.core = core
        self.slots = slots
        self._arrays = arrays
        self.flat = np.frombuffer(memory_of(core, np.ctypeslib.as_ctypes_type(np.dtype(dtype)))[0], np.dtype(dtype))
        self.flat[...] = 0  # gaps between parameters, too

    @property
    def names(self) -> list[str]:
        """Of its parameters."""
        return [slot.name for slot in self.slots]

    def parameter(self, slot: ArraySlot) -> Any:
        """Its array, which may be written to."""
        return self._arrays[slot.number]

    def private(self) -> Any:
        """A vector of zeros of this layout."""
        return np.zeros_like(self.flat)

    def copy_parameters(self, vector: Any) -> None:
        """Puts the parameters into a vector of this layout."""
        for slot in self.slots:
            slot.of(vector)[...] = self.parameter(slot)

    def set_parameters_to(self, vector: Any) -> None:
        """Takes the parameters from a vector of this layout."""
        for slot in self.slots:
            np.copyto(self.parameter(slot), slot.of(vector), casting="unsafe")

    def hand_over(self) -> None:
        """Begins a round."""
        self.core.start()

    def test(self) -> bool:
        """wait() would not wait."""
        return self.core.test()

    def wait(self) -> None:
        """The result is in flat. After a TimeoutError it may be called again."""
        wait_for(self.core)

    # ---- for averaging and gossip

    def hand_over_copy(self, vector: Any) -> None:
        """Begins a round with these elements."""
        self.flat[...] = vector
        self.hand_over()

    def subtract(self, vector: Any) -> None:
        """From what is in flat."""
        self.flat -= vector

    def add(self, other: ArrayBucket) -> None:
        """To what is in flat: what is in another one's."""
        self.flat += other.flat

    def move_parameters(self, share: float) -> None:
        """Adds ``share`` times flat, which is changed."""
        self.flat *= self.flat.dtype.type(share)
        for slot in self.slots:
            parameter = self.parameter(slot)
            np.add(parameter, slot.of(self.flat), out=parameter, casting="unsafe")

    def set_parameters(self) -> None:
        """To what is in flat."""
        self.set_parameters_to(self.flat)


class ArrayOuterBucket:
    """A bucket of pseudo-gradients, the global copy of its parameters and the outer momentum."""

    def __init__(self, bucket: ArrayBucket, mode: _core.Mode) -> None:
        self._bucket = bucket
        self._theta = bucket.private()  # the global copy
        self._momentum = bucket.private() if mode.outer_momentum else None
        # The parameters as they were at the start, where they change before the end.
        self._snapshot = bucket.private() if mode.overlap else None
        self._lr = self._theta.dtype.type(mode.outer_lr)
        self._momentum_factor = self._theta.dtype.type(mode.outer_momentum)

    @property
    def names(self) -> list[str]:
        """Of its parameters."""
        return self._bucket.names

    def anchor(self) -> None:
        """The parameters are the global copy."""
        self._bucket.copy_parameters(self._theta)

    def start(self) -> None:
        """Sends the pseudo-gradient off."""
        for slot in self._bucket.slots:
            np.subtract(slot.of(self._theta), self._bucket.parameter(slot), out=slot.of(self._bucket.flat))
        if self._snapshot is not None:
            self._bucket.copy_parameters(self._snapshot)
        self._bucket.hand_over()

    def wait(self) -> None:
        """The mean is in the bucket. After a TimeoutError it may be called again."""
        self._bucket.wait()

    def apply(self) -> None:
        """The outer step, on the mean that is in the bucket."""
        self._step_theta(self._bucket.flat)
        if self._snapshot is None:
            self._bucket.set_parameters_to(self._theta)
            return
        for slot in self._bucket.slots:
            parameter = self._bucket.parameter(slot)
            progress = parameter - slot.of(self._snapshot)
            np.copyto(parameter, slot.of(self._theta) + progress, casting="unsafe")

    def _step_theta(self, mean: Any) -> None:
        if self._momentum is not None:
            self._momentum *= self._momentum_factor
            self._momentum += mean
            mean += self._momentum * self._momentum_factor
        self._theta -= mean * self._lr


class _Registers:
    """Registers parameters for groups.py."""

    def __init__(self, parameters: Sequence[Gradient], settings: Settings, arrays: list[Any]) -> None:
        self._parameters = parameters
        self._settings = settings
        self._arrays = arrays

    def register(
        self, parameters: Sequence[tuple[str, int]], prefix: str, session: _core.Session, may_compress: bool
    ) -> list[ArrayBucket]:
        """``parameters``: names and numbers."""
        if not parameters:
            return []
        infos = [self._info(number, session, may_compress) for _, number in parameters]
        plans = plan_buckets(infos, self._settings.bucket_bytes, prefix)
        specs = [
            (plan.name, plan.count, DTYPES[plan.dtype][1], int(Average), plan.compression, plan.columns, "sync")
            for plan in plans
        ]
        cores = session.register_buckets(specs)
        return [
            ArrayBucket(core, self._slots(plan, parameters), plan.dtype, self._arrays)
            for core, plan in zip(cores, plans)
        ]

    def _info(self, number: int, session: _core.Session, may_compress: bool) -> ParameterInfo:
        info = info_of(self._parameters[number], self._settings, session)
        codec, columns = (info.compression, info.columns) if may_compress else ("none", 0)
        dtype = "float64" if info.dtype == "float64" else "float32"
        return dataclasses.replace(info, dtype=dtype, mode="sync", compression=codec, columns=columns)

    def _slots(self, plan: BucketPlan, parameters: Sequence[tuple[str, int]]) -> list[ArraySlot]:
        numbers = [number for _, number in parameters]
        return slots_of(plan, numbers, self._parameters)

    def outer(self, bucket: ArrayBucket, mode: _core.Mode) -> ArrayOuterBucket:
        """For localsgd and diloco."""
        return ArrayOuterBucket(bucket, mode)

    def bytes_of(self, number: int) -> int:
        """Its size."""
        return int(self._arrays[number].nbytes)

    def codec_of(self, parameter: tuple[str, int], session: _core.Session) -> str:
        """As the job's policy or the optimizer has it."""
        return info_of(self._parameters[parameter[1]], self._settings, session).compression


class ArrayModes:
    """The parameters of one optimizer. All ranks make one with the same arguments; it waits for them.

    One thread at a time. After an error, each later call raises BusyError: other ranks may have gone on.
    """

    def __init__(self, parameters: Sequence[Gradient], prefix: str, settings: Settings) -> None:
        session = session_of(settings.process_set, prefix)
        self._arrays = [np.empty(one.shape, _dtype(one.dtype)) for one in parameters]
        self._parameters = parameters
        self._process_set = settings.process_set
        self._prefix = prefix
        self._guard = guard_of_parameters(prefix)
        maker: Groups[ArrayOuterBucket] = Groups(
            prefix, settings.process_set, _Registers(parameters, settings, self._arrays))
        self._stepping: list[LocalSteps[ArrayOuterBucket]] = []
        self._averaging: list[Averaging] = []
        modes = [((one.name, number), mode_of(one, settings, session)) for number, one in enumerate(parameters)]
        for group in by_mode(modes):
            made = maker.make([parameter for parameter, _ in group], group[0][1])
            self._stepping.append(made) if isinstance(made, LocalSteps) else self._averaging.append(made)
        settings.process_set._before_close(lambda _: maker.close())

    def before_step(self, given: Sequence[Any], results: Sequence[Any]) -> None:
        """The first time the results are the lowest rank's parameters, later ``given``."""
        new = [group for group in self._stepping if not group.anchored]
        self._run(given, results, functools.partial(self._anchor, new))

    def after_step(self, given: Sequence[Any], results: Sequence[Any]) -> None:
        """Begins and ends the exchanges whose turn it is. ``results``: the parameters then."""
        self._run(given, results, self._exchange)

    def flush(self, given: Sequence[Any], results: Sequence[Any]) -> None:
        """Ends what is under way. ``results``: the same bits on all ranks, which all call it."""
        self._run(given, results, self._flush)

    def _run(self, given: Sequence[Any], results: Sequence[Any], exchange: Callable[[], None]) -> None:
        with self._guard.turn():
            for own, array in zip(self._arrays, given):
                np.copyto(own, np.asarray(array))
            with self._guard.exchange():
                exchange()
            for own, result in zip(self._arrays, results):
                np.copyto(result, own)

    def _anchor(self, new: Sequence[LocalSteps[ArrayOuterBucket]]) -> None:
        if not new:
            return
        chosen = {name for group in new for name in group.names}
        numbers = [number for number, one in enumerate(self._parameters) if one.name in chosen]
        named = [(self._parameters[number].name, self._arrays[number]) for number in numbers]
        root = lowest_rank(self._process_set)
        received = broadcast_arrays(f"{self._prefix}/anchor", named, root, self._process_set)
        for number, array in zip(numbers, received):
            np.copyto(self._arrays[number], array)
        for group in new:
            group.anchor()

    def _exchange(self) -> None:
        for group in [*self._stepping, *self._averaging]:
            group.stepped()

    def _flush(self) -> None:
        # All are begun first: a rank that has made more steps waits for the group whose turn comes next.
        for steps in self._stepping:
            steps.begin_flush()
        for steps in sorted(self._stepping, key=lambda one: one.steps_to_turn):
            steps.end_flush()
        for averaging in self._averaging:
            averaging.flush()


def _dtype(name: str) -> Any:
    return bfloat16() if name == "bfloat16" else np.dtype(name)


def _find_local(parameters: Sequence[Gradient], prefix: str, settings: Settings) -> list[int]:
    session = session_of(settings.process_set, prefix)
    return [number for number, one in enumerate(parameters) if is_local(mode_of(one, settings, session))]


_MODES: Exchanges[ArrayModes] = Exchanges(ArrayModes)
_LOCAL: Exchanges[list[int]] = Exchanges(_find_local)  # policies have many rules, and steps ask each time


def local_numbers(parameters: Sequence[Gradient], prefix: str, settings: Settings) -> list[int]:
    """Which of these ranks exchange as parameters. Raises ClosedError before init()."""
    return _LOCAL.of(prefix, settings, parameters)


def before_step(named: Sequence[tuple[str, Any]], prefix: str, settings: Settings, results: Sequence[Any]) -> None:
    """``named``: the parameters of local_numbers(). Writes those to step from to ``results``."""
    _MODES.of(prefix, settings, described(named)).before_step([array for _, array in named], results)


def after_step(named: Sequence[tuple[str, Any]], prefix: str, settings: Settings, results: Sequence[Any]) -> None:
    """``named``: the parameters of local_numbers(), after the step. Writes those to go on from to ``results``."""
    _MODES.of(prefix, settings, described(named)).after_step([array for _, array in named], results)


def flush(named: Sequence[tuple[str, Any]], prefix: str, settings: Settings, results: Sequence[Any]) -> None:
    """``named``: the parameters of local_numbers(). Writes those of all ranks to ``results``."""
    _MODES.of(prefix, settings, described(named)).flush([array for _, array in named], results)


def described(named: Sequence[tuple[str, Any]]) -> list[Gradient]:
    """What an exchange of these arrays depends on."""
    return [Gradient(name, tuple(array.shape), str(array.dtype)) for name, array in named]

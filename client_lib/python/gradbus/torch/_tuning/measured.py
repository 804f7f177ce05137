"""What all ranks agree on about their steps: means and maxima, the cost of an exchange, and the layers as JSON.

server/scheduling/job/job_question.h and server/scheduling/workload.h have the format.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import torch

from ..._differentiable import allreduce
from ..._layout import DTYPES, PAIRS_OF
from ..._ops import Average, Max, Min
from ..._process_sets import ProcessSet, session_of
from .._buckets.parameter_info import NamedParameter, real_count
from .._buckets.retire import retire_names
from .attendance import Attendance
from .step_times import Row, StepTimes

LAYERS_MAX = 1024  # server/scheduling/job/job_question.h
SMALL, LARGE = 16 << 10, 1 << 20  # elements of the exchanges that are timed
REPEATS = 3
WARM_STEPS = 3  # before a measurement: they fill caches, and the first one makes buckets

Parameters = Sequence[tuple[NamedParameter, int]]  # and their groups


class Agreement:
    """Of the ranks of a process set. They make the same calls in the same order."""

    def __init__(self, process_set: ProcessSet, attendance: Attendance, prefix: str) -> None:
        self._process_set = process_set
        self._attendance = attendance
        self._prefix = prefix  # of the names of its operations

    def _reduced(self, values: Sequence[float], op: int) -> list[float]:
        name = f"{self._prefix}/times"
        mine = torch.tensor(values, dtype=torch.float64, device="cpu")
        both = allreduce(mine, name, op, process_set=self._process_set).tolist()
        retire_names([name], self._process_set)
        return [float(value) for value in both]

    def slowest(self, seconds: float) -> float:
        """The largest value of all ranks. Raises RankHasCalledJoin."""
        self._attendance.require_all()
        return self._reduced([seconds], Max)[0]

    def least(self, values: Sequence[float]) -> list[float]:
        """The smallest of all ranks, by place."""
        return self._reduced(values, Min)

    def fidelity(self, vector: torch.Tensor, compression: str) -> tuple[float, float]:
        """Compares a vector that all ranks have with its compressed mean: (cosine of their angle, ratio of norms).

        The ratio is that of the longer to the shorter one. (0, inf) for a mean that is not finite.
        """
        name = f"{self._prefix}/fidelity"
        found = allreduce(vector, name, process_set=self._process_set, compression=compression)
        retire_names([name], self._process_set)
        dense, coded = vector.double(), found.double()
        norms = sorted([float(dense.norm()), float(coded.norm())])
        if not norms[0] or not all(map(math.isfinite, norms)):
            return 0.0, math.inf
        return float(torch.nn.functional.cosine_similarity(dense, coded, dim=0)), norms[1] / norms[0]

    def largest(self, values: Sequence[float]) -> list[float]:
        """The largest of all ranks, by place."""
        return self._reduced(values, Max)

    def mean(self, times: StepTimes) -> Row:
        """Of the ranks' medians. Raises RankHasCalledJoin."""
        self._attendance.require_all()
        forward, backward, rest = times.medians()
        both = self._reduced([*forward, *backward, rest], Average)
        count = len(forward)
        return both[:count], both[count:-1], both[-1]

    def exchange_cost(self, compression: str) -> dict[str, float]:
        """Of an all-reduce of m bytes: startup + m * byte, by the slowest rank."""
        found = []
        for count in (SMALL, LARGE):
            name = f"{self._prefix}/exchange"
            # Ones would be too easy.
            numbers = torch.Generator("cpu").manual_seed(count)
            vector = torch.randn(count, generator=numbers, dtype=torch.float32, device="cpu")
            spans = []
            for _ in range(REPEATS + 1):
                began = time.monotonic()
                allreduce(vector, name, process_set=self._process_set, compression=compression)
                spans.append(time.monotonic() - began)
            retire_names([name], self._process_set)
            found.append(min(spans[1:]))
        small, large = self._reduced(found, Max)
        byte_ns = max(0.0, (large - small) * 1e9 / (4 * (LARGE - SMALL)))
        return {"startup_us": max(1.0, small * 1e6 - byte_ns * 4 * SMALL / 1e3), "byte_ns": byte_ns}


class Measurement:
    """Times of the steps of one optimizer, after some to warm up."""

    def __init__(self, state: Any) -> None:
        self._state = state
        self._steps = 0
        self._times: StepTimes | None = None

    def stepped(self) -> StepTimes | None:
        """After each step. The times, when there are enough."""
        if self._times is not None:
            self._times.stepped()
            return self._times if self._times.is_complete else None
        self._steps += 1
        if self._steps >= WARM_STEPS:
            session = session_of(self._state.settings.process_set, "DistributedOptimizer")
            self._times = StepTimes([pair for pair, _ in self._state.parameters], session.waited_ns)
            self._times.stepped()
            self._state.exchange.time_with(self._times)
        return None

    def stop(self) -> None:
        """Nothing is measured any more."""
        if self._times is not None:
            self._times.close()
            self._state.exchange.time_with(None)
            self._times = None

    def restart(self) -> None:
        """Forgets what was measured."""
        self.stop()
        self._steps = 0


def layers_of_buckets(state: Any, order: list[int], layer_parameters: list[list[int]]) -> list[tuple[int, list[int]]]:
    """The number of each bucket and its layers, by the order of workload_of(). Each layer is in the first one only."""
    number_of = {name: number for number, ((name, _), _) in enumerate(state.parameters)}
    layer_of = {number: layer for layer, index in enumerate(order) for number in layer_parameters[index]}
    found: list[tuple[int, list[int]]] = []
    seen: set[int] = set()
    for number, bucket in enumerate(state.exchange.buckets):
        layers = dict.fromkeys(layer_of[number_of[slot.name]] for slot in bucket.slots)
        fresh = [layer for layer in layers if layer not in seen]
        seen.update(fresh)
        if fresh:
            found.append((number, fresh))
    return found


def layer_parameters_of(times: StepTimes, count: int) -> list[list[int]]:
    """The numbers of each layer's parameters, in the order of arrival. Where there are many, a layer has several."""
    order = [*times.arrival, *(n for n in range(count) if n not in set(times.arrival))]
    step = -(-len(order) // LAYERS_MAX)
    return [order[begin : begin + step] for begin in range(0, len(order), step)]


def workload_of(
    parameters: Parameters, layer_parameters: list[list[int]], times: StepTimes, row: Row
) -> tuple[dict[str, Any], list[int]]:
    """Layers in the order of the forward pass, and the index of each layer."""
    forward, backward, rest = row
    place = {number: at for at, number in enumerate(times.forward_order)}
    key = lambda index: min(place.get(number, len(place)) for number in layer_parameters[index])  # noqa: E731
    order = sorted(range(len(layer_parameters)), key=key)
    layers = [_layer(parameters, layer_parameters[index], forward, backward) for index in order]
    layers[0]["forward_us"] += rest
    layer_of = {index: layer for layer, index in enumerate(order)}
    backward_order = [layer_of[index] for index in range(len(layer_parameters))]
    return {"name": "running job", "layers": layers, "backward_order": backward_order}, order


def _layer(
    parameters: Parameters, numbers: list[int], forward: list[float], backward: list[float]
) -> dict[str, Any]:
    (name, first), _ = parameters[numbers[0]]
    dtype = str(first.dtype).replace("torch.", "")
    elements = sum(real_count(parameters[number][0][1]) for number in numbers)
    return {
        "name": name[:80], "elements": elements, "dtype": DTYPES[PAIRS_OF.get(dtype, dtype)][0],
        "forward_us": sum(forward[n] for n in numbers), "backward_us": sum(backward[n] for n in numbers),
    }  # fmt: skip

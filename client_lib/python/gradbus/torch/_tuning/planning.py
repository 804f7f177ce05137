"""Plans of the coordinator: which gradients share a bucket, by what a step computes and an exchange costs.

After a few steps each rank has measured its own. At a fence all take the mean. The lowest rank asks the coordinator,
and all ranks apply the answer. Between fences no message is sent. A plan that ``auto`` was given stays only if steps
are faster with it.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..._data_movement import broadcast_
from ..._differentiable import allreduce
from ..._errors import GradbusError
from ..._layout import DTYPES, PAIRS_OF
from ..._ops import Average, Max
from ..._process_sets import lowest_rank, session_of
from .._buckets.parameter_info import real_count
from .._buckets.retire import retire_names
from .step_times import StepTimes

WARM_STEPS = 3  # before a measurement: they fill caches, and the first one makes buckets
TRIAL_STEPS = 8  # of a plan that auto was given
LAYERS_MAX = 1024  # server/scheduling/job/job_question.h
GAIN_MIN = 0.03  # predicted, of a step: less is not worth a trial
KEEP_MIN = 0.01  # measured, of a step
SMALL, LARGE = 16 << 10, 1 << 20  # elements of the exchanges that are timed
REPEATS = 3


@dataclasses.dataclass(frozen=True)
class StepPlan:
    """Which gradients share a bucket, and where ranks wait: "backward", "layer" or "split"."""

    waits: str
    names: tuple[str, ...]  # parameters in the order in which they are ready
    group_of: dict[str, int]
    dense: frozenset[int] = frozenset()  # groups that are not compressed
    why: str = ""


Apply = Callable[[Any, "StepPlan | None"], None]


class Planning:
    """Of one optimizer. All ranks call stepped() after each step, and come to the same end."""

    def __init__(self, state: Any, apply: Apply) -> None:
        self._state = state
        self._apply = apply
        self._process_set = state.settings.process_set
        self._prefix = f"plan{state.settings.number or ''}"
        self._steps = 0
        self._times: StepTimes | None = None
        self._trial: list[float] | None = None
        self._last = 0.0
        self._before = 0.0  # seconds of a step without the plan
        self._earlier: StepPlan | None = None
        self.is_done = False
        self.recorded: dict[str, Any] | None = None  # the last question, for a recording

    @property
    def _is_auto(self) -> bool:
        return bool(self._state.settings.schedule.name == "auto")

    def stepped(self, optimizer: Any) -> None:
        """After each step."""
        self._steps += 1
        if self._trial is not None:
            self._try(optimizer)
        elif self._times is not None:
            self._times.stepped()
            if self._times.is_complete:
                self._plan(optimizer)
        elif self._steps >= WARM_STEPS:
            session = session_of(self._process_set, "DistributedOptimizer")
            self._times = StepTimes([pair for pair, _ in self._state.parameters], session.waited_ns)
            self._times.stepped()
            self._state.exchange.time_with(self._times)

    def stop(self) -> None:
        """Nothing is measured any more."""
        if self._times is not None:
            self._times.close()
            self._state.exchange.time_with(None)
            self._times = None
        self.is_done = True

    # ---- the plan

    def _plan(self, optimizer: Any) -> None:
        times = self._times
        assert times is not None
        self._state.exchange.settle()
        self._before = self._slowest(statistics.median(times.seconds))
        forward, backward, rest = self._mean(times)
        self.stop()
        question = self._question(times, forward, backward, rest)
        self.recorded = question
        answer, units = self._ask(question, times)
        if "error" in answer:
            warnings.warn(f"gradbus: buckets stay as they are: {answer['error']}", stacklevel=5)
            return
        if self._is_auto and not answer["us"] < answer["now_us"] * (1 - GAIN_MIN):
            return
        self._earlier = self._state.plan
        self._apply(optimizer, self._plan_of(answer, units))
        if self._is_auto:
            self.is_done = False
            self._trial = []
            self._last = time.monotonic()

    def _try(self, optimizer: Any) -> None:
        assert self._trial is not None
        now = time.monotonic()
        self._trial.append(now - self._last)
        self._last = now
        if len(self._trial) < WARM_STEPS + TRIAL_STEPS:
            return
        after = self._slowest(statistics.median(self._trial[WARM_STEPS:]))
        self._trial, self.is_done = None, True
        if not after < self._before * (1 - KEEP_MIN):
            self._apply(optimizer, self._earlier)

    # ---- what ranks agree on

    def _reduced(self, values: Sequence[float], op: int) -> list[float]:
        name = f"{self._prefix}/times"
        mine = torch.tensor(values, dtype=torch.float64)
        both = allreduce(mine, name, op, process_set=self._process_set).tolist()
        retire_names([name], self._process_set)
        return [float(value) for value in both]

    def _slowest(self, seconds: float) -> float:
        return self._reduced([seconds], Max)[0]

    def _mean(self, times: StepTimes) -> tuple[list[float], list[float], float]:
        forward, backward, rest = times.medians()
        both = self._reduced([*forward, *backward, rest], Average)
        count = len(forward)
        return both[:count], both[count:-1], both[-1]

    def _exchange_cost(self, compression: str | None) -> dict[str, float]:
        """Of an all-reduce of m bytes: startup + m * byte, by the slowest rank."""
        found = []
        for count in (SMALL, LARGE):
            name = f"{self._prefix}/exchange"
            vector = torch.ones(count)
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

    # ---- question and answer

    def _question(
        self, times: StepTimes, forward: list[float], backward: list[float], rest: float
    ) -> dict[str, Any]:
        """The same keys on all ranks: each takes part in the exchanges that are timed."""
        state = self._state
        question: dict[str, Any] = {
            "want": "plan", "schedule": state.settings.schedule.name, "groups": state.settings.schedule.groups,
            "network": self._exchange_cost("none"), "forward": state.may_wait_in_forward(),
        }  # fmt: skip
        codec = self._codec()
        if codec is not None:
            question["codec"] = {"name": codec, **self._exchange_cost(codec)}
        question["times"] = (forward, backward, rest)
        return question

    def _codec(self) -> str | None:
        """The codec of most compressed bytes; None: all is dense."""
        sizes: dict[str, int] = {}
        for bucket in self._state.exchange.buckets:
            if bucket.compressed:
                sizes[bucket.spec[4]] = sizes.get(bucket.spec[4], 0) + bucket.spec[1]
        plain = {codec: size for codec, size in sizes.items() if codec.partition(":")[0] not in ("powersgd", "rows")}
        return max(plain, key=lambda codec: plain[codec]) if plain else None

    def _units(self, times: StepTimes) -> list[list[int]]:
        """Parameters in the order of arrival; several share a unit where there are very many."""
        order = [*times.arrival, *(n for n in range(len(self._state.parameters)) if n not in set(times.arrival))]
        step = -(-len(order) // LAYERS_MAX)
        return [order[begin : begin + step] for begin in range(0, len(order), step)]

    def _workload(
        self, units: list[list[int]], times: StepTimes, question: dict[str, Any]
    ) -> tuple[dict[str, Any], list[int]]:
        """And the unit of each layer."""
        forward, backward, rest = question["times"]
        place = {number: at for at, number in enumerate(times.forward_order)}
        key = lambda unit: min(place.get(number, len(place)) for number in units[unit])  # noqa: E731
        order = sorted(range(len(units)), key=key)
        layers = [self._layer(units[unit], forward, backward) for unit in order]
        layers[0]["forward_us"] += rest
        layer_of = {unit: layer for layer, unit in enumerate(order)}
        backward_order = [layer_of[unit] for unit in range(len(units))]
        return {"name": "running job", "layers": layers, "backward_order": backward_order}, order

    def _layer(self, unit: list[int], forward: list[float], backward: list[float]) -> dict[str, Any]:
        (name, first), _ = self._state.parameters[unit[0]]
        dtype = str(first.dtype).replace("torch.", "")
        elements = sum(real_count(self._state.parameters[number][0][1]) for number in unit)
        return {
            "name": name[:80], "elements": elements, "dtype": DTYPES[PAIRS_OF.get(dtype, dtype)][0],
            "forward_us": sum(forward[n] for n in unit), "backward_us": sum(backward[n] for n in unit),
        }  # fmt: skip

    def _now(self, order: list[int], units: list[list[int]]) -> dict[str, Any]:
        numbers = {name: number for number, ((name, _), _) in enumerate(self._state.parameters)}
        layer_of = {number: layer for layer, unit in enumerate(order) for number in units[unit]}
        groups: list[list[int]] = []
        seen: set[int] = set()
        for bucket in self._state.exchange.buckets:
            group = dict.fromkeys(layer_of[numbers[slot.name]] for slot in bucket.slots)
            fresh = [layer for layer in group if layer not in seen]
            seen.update(fresh)
            if fresh:
                groups.append(fresh)
        return {"waits": self._state.exchange.waits, "groups": groups}

    def _ask(self, question: dict[str, Any], times: StepTimes) -> tuple[dict[str, Any], list[list[int]]]:
        """The answer, and the parameters of each layer: the same on all ranks, from the lowest one."""
        session = session_of(self._process_set, "DistributedOptimizer")
        text = ""
        if session.rank == 0:
            units = self._units(times)
            question["workload"], order = self._workload(units, times, question)
            question["now"] = self._now(order, units)
            sent = {key: value for key, value in question.items() if key != "times"}
            try:
                answer = json.loads(session.ask_coordinator(json.dumps(sent)))
                answer["units"] = [units[unit] for unit in order]
            except GradbusError as error:
                answer = {"error": str(error)}
            text = json.dumps(answer)
        answer = json.loads(self._from_lowest(text))
        return answer, answer.pop("units", [])

    def _from_lowest(self, text: str) -> str:
        root, name = lowest_rank(self._process_set), f"{self._prefix}/answer"
        size = torch.tensor([len(text.encode())])
        broadcast_(size, root, f"{name}/bytes", process_set=self._process_set)
        letters = torch.zeros(int(size[0]), dtype=torch.uint8)
        if text:
            letters = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
        broadcast_(letters, root, name, process_set=self._process_set)
        retire_names([name, f"{name}/bytes"], self._process_set)
        return bytes(letters.tolist()).decode()

    def _plan_of(self, answer: dict[str, Any], units: list[list[int]]) -> StepPlan:
        names: list[str] = []
        group_of: dict[str, int] = {}
        for number, layers in enumerate(answer["groups"]):
            for layer in layers:
                for parameter in units[layer]:
                    name = self._state.parameters[parameter][0][0]
                    names.append(name)
                    group_of[name] = number
        dense = frozenset(n for n, compressed in enumerate(answer["compressed"]) if not compressed)
        return StepPlan(answer["waits"], tuple(names), group_of, dense, answer["why"])


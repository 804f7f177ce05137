"""Plans of the coordinator: which gradients share a bucket, by what a step computes and an exchange costs.

After a few steps each rank has measured its own. At a fence all take the mean. The lowest rank asks the coordinator,
and all ranks apply the answer. Between fences no message is sent. ``auto`` gets several plans and tries them: the model
may be wrong, and what it replaces stays unless another one is faster.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from ..._layout import MATRIX_CODECS
from .measured import Agreement, Measurement, layer_parameters_of, layers_of_buckets, workload_of
from .plan_trials import Trials
from .questions import ask_for_all, from_lowest
from .step_times import Row, StepTimes

LOSS_MAX = 0.05  # predicted, of a step: a plan that loses more is not tried


@dataclasses.dataclass(frozen=True)
class StepPlan:
    """Which gradients share a bucket, and where ranks wait: "backward", "layer" or "split"."""

    waits: str
    names: tuple[str, ...]  # parameters in the order in which they are ready
    group_of: dict[str, int]
    dense: frozenset[int] = frozenset()  # groups that are not compressed
    why: str = ""
    codecs: Mapping[int, str] = dataclasses.field(default_factory=dict)  # by group, of those that choose one
    gauge_every: int = 0  # rounds from one measurement of a codec's loss to the next


Apply = Callable[[Any, "StepPlan | None"], None]


class Planning:
    """Of one optimizer. All ranks call stepped() after each step, and come to the same end."""

    def __init__(self, state: Any, apply: Apply) -> None:
        self._state = state
        self._apply = apply
        self._process_set = state.settings.process_set
        self._prefix = f"plan{state.settings.number or ''}"
        self._agreement = Agreement(self._process_set, state.attendance, self._prefix)
        self._measurement = Measurement(state)
        self._trials: Trials | None = None
        self.is_done = False

    @property
    def _is_auto(self) -> bool:
        return bool(self._state.settings.schedule.name == "auto")

    def stepped(self, optimizer: Any) -> None:
        """After each step."""
        if self._trials is not None:
            self._trials.stepped(optimizer)
            self.is_done = self._trials.is_done
        else:
            times = self._measurement.stepped()
            if times is not None:
                self._plan(optimizer, times)

    def restart(self) -> None:
        """Measures anew what it was about to decide on."""
        if self._trials is not None:
            self._trials.restart_turn()
        else:
            self._measurement.restart()

    def stop(self) -> None:
        """Nothing is measured any more."""
        self._measurement.stop()
        self.is_done = True

    # ---- the plan

    def _plan(self, optimizer: Any, times: StepTimes) -> None:
        self._state.exchange.settle()
        row = self._agreement.mean(times)
        self.stop()
        question = self._question(row)
        answer, layer_parameters = self._ask(question, times)
        if "error" in answer:
            warnings.warn(f"gradbus: buckets stay as they are: {answer['error']}", stacklevel=5)
            return
        if not self._is_auto:
            self._apply(optimizer, self._plan_of(answer, layer_parameters))
            return
        slowest_us = answer["now_us"] * (1 + LOSS_MAX)
        plans = [self._plan_of(one, layer_parameters) for one in (answer, *answer["others"]) if one["us"] < slowest_us]
        if plans:
            self.is_done = False
            self._trials = Trials([self._state.plan, *plans], self._apply, self._agreement.slowest)

    # ---- question and answer

    def _question(self, row: Row) -> dict[str, Any]:
        """The same keys on all ranks: each takes part in the exchanges that are timed."""
        state = self._state
        question: dict[str, Any] = {
            "want": "plan", "schedule": state.settings.schedule.name, "groups": state.settings.schedule.groups,
            "network": self._agreement.exchange_cost("none"), "forward": state.may_wait_in_forward(),
        }  # fmt: skip
        codec = self._codec()
        if codec is not None:
            question["codec"] = {"name": codec, **self._agreement.exchange_cost(codec)}
        question["times"] = row
        return question

    def _codec(self) -> str | None:
        """The codec of most compressed bytes; None: all is dense."""
        sizes: dict[str, int] = {}
        for bucket in self._state.exchange.buckets:
            if bucket.compressed:
                sizes[bucket.spec[4]] = sizes.get(bucket.spec[4], 0) + bucket.spec[1]
        plain = {codec: size for codec, size in sizes.items() if codec.partition(":")[0] not in MATRIX_CODECS}
        return max(plain, key=lambda codec: plain[codec]) if plain else None

    def _ask(self, question: dict[str, Any], times: StepTimes) -> tuple[dict[str, Any], list[list[int]]]:
        """The answer, and the parameters of each layer: the same on all ranks, from the lowest one."""

        def complete() -> dict[str, Any]:
            layer_parameters = layer_parameters_of(times, len(self._state.parameters))
            parameters = self._state.parameters
            question["workload"], order = workload_of(parameters, layer_parameters, times, question["times"])
            groups = [layers for _, layers in layers_of_buckets(self._state, order, layer_parameters)]
            question["now"] = {"waits": self._state.exchange.waits, "groups": groups}
            question["layer_parameters"] = [layer_parameters[index] for index in order]
            return {key: value for key, value in question.items() if key not in ("times", "layer_parameters")}

        answer = ask_for_all(self._process_set, f"{self._prefix}/answer", complete)
        if "error" in answer:
            return answer, []
        name = f"{self._prefix}/layer_parameters"
        return answer, from_lowest(self._process_set, name, lambda: question["layer_parameters"])

    def _plan_of(self, answer: dict[str, Any], layer_parameters: list[list[int]]) -> StepPlan:
        names: list[str] = []
        group_of: dict[str, int] = {}
        for number, layers in enumerate(answer["groups"]):
            for layer in layers:
                for parameter in layer_parameters[layer]:
                    name = self._state.parameters[parameter][0][0]
                    names.append(name)
                    group_of[name] = number
        dense = frozenset(n for n, compressed in enumerate(answer["compressed"]) if not compressed)
        return StepPlan(answer["waits"], tuple(names), group_of, dense, answer["why"])

"""Chooses a codec, or none, for each bucket: ``compression="auto"``, or a list of codecs.

After some steps the ranks measure what exchanges cost, dense and by each codec. The coordinator says which buckets
would shorten the step, and with which codec. All ranks try these plans beside dense exchange, and keep the fastest.
A codec that turns gradients too far, or changes their length, is not tried, and a gauge goes on measuring the one
that stays. All ranks call stepped() after each step, and come to the same end.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any

import torch

from ..._errors import InvalidError
from ..._ops import checked_compression, is_choice
from ..._process_sets import ProcessSet, session_of
from .._buckets.parameter_info import asked_compression, info_of
from .codec_choice import parse_choice
from .measured import Agreement, Measurement, layer_parameters_of, layers_of_buckets, workload_of
from .plan_trials import Trials
from .planning import Apply, StepPlan
from .questions import ask_for_all, from_lowest
from .step_times import Row, StepTimes

PLANS_MAX = 3  # that are tried beside dense exchange
KEEP_MIN = 0.03  # of a step: what a codec must save
GAUGE_EVERY = 100  # rounds, of the codec that stays
WATCH_EVERY = 200  # steps from one look at the gauge to the next
# Times 1 / cosine limit: how much longer or shorter a codec may make a gradient. One that keeps some elements makes
# it shorter by its cosine, and an unbiased one longer by 1 / cosine.
LENGTH_SLACK = 2.0
SAMPLE_ELEMENTS = 1 << 18  # of a bucket, whose fidelity is measured first
SAMPLED_BUCKETS = 16  # the largest
BUCKETS_WATCHED = 256  # their names fit into a question

Bucket = Any  # gradient_buckets.Bucket; importing it would be a circle


class CodecTrials:
    """Of one optimizer, some of whose gradients leave their codec to the training."""

    def __init__(self, state: Any, apply: Apply) -> None:
        """``apply`` makes an optimizer use a plan."""
        self._state = state
        self._apply = apply
        self._process_set = state.settings.process_set
        self._prefix = f"codecs{state.settings.number or ''}"
        self._agreement = Agreement(self._process_set, state.attendance, self._prefix)
        self._choices = choices_of(state)  # by parameter
        self._measurement = Measurement(state)
        self._trials: Trials | None = None
        self._plans: list[StepPlan | None] = []
        self._vetoed: dict[str, str] = {}  # codec -> why
        self._watched = 0  # steps since the last look at the gauge
        self.is_settled = False  # nothing is tried any more
        self.why = ""  # of what was chosen

    def stepped(self, optimizer: Any) -> None:
        """After each step."""
        if self.is_settled:
            self._watch(optimizer)
        elif self._trials is not None:
            self._trials.stepped(optimizer)
            if self._trials.is_done:
                self._settle_on(self._trials)
        else:
            times = self._measurement.stepped()
            if times is not None:
                self._choose(times)

    def restart(self) -> None:
        """Measures anew what it was about to decide on."""
        self._watched = 0
        if self._trials is not None:
            self._trials.restart_turn()
        elif not self.is_settled:
            self._measurement.restart()

    def stop(self) -> None:
        """Nothing is measured any more."""
        self._measurement.stop()
        self.is_settled = True

    # ---- what is tried

    def _choose(self, times: StepTimes) -> None:
        self._state.exchange.settle()
        row = self._agreement.mean(times)
        self.stop()
        buckets = list(self._state.exchange.buckets)
        codecs = self._codecs_by_fidelity(buckets)
        if not codecs:
            return self._stay_dense("no codec keeps enough of the gradients")
        answer, numbers = self._ask(codecs, buckets, times, row)
        if "error" in answer:
            warnings.warn(f"gradbus: nothing is compressed: {answer['error']}", stacklevel=5)
            return self._stay_dense("the coordinator gives no advice")
        plans = [self._plan_of(one["codecs"], numbers, codecs, buckets) for one in answer["plans"][:PLANS_MAX]]
        if not plans:
            return self._stay_dense(f"no codec would shorten a step of {answer['dense_us'] / 1e3:.1f} ms by the model")
        self._plans = [self._state.plan, *plans]
        self.is_settled = False
        self._trials = Trials(self._plans, self._apply, self._agreement.slowest, KEEP_MIN, confirms=True)

    def _ask(
        self, codecs: list[str], buckets: Sequence[Bucket], times: StepTimes, row: Row
    ) -> tuple[dict[str, Any], list[int]]:
        """The coordinator's answer, and the bucket of each of its groups."""
        question: dict[str, Any] = {"want": "codecs", "network": self._agreement.exchange_cost("none")}
        question["codecs"] = [{"name": codec, **self._agreement.exchange_cost(codec)} for codec in codecs]
        numbers: list[int] = []

        def complete() -> dict[str, Any]:
            layer_parameters = layer_parameters_of(times, len(self._state.parameters))
            question["workload"], order = workload_of(self._state.parameters, layer_parameters, times, row)
            question["now"], found = self._now(buckets, order, layer_parameters)
            numbers.extend(found)
            return question

        answer = ask_for_all(self._process_set, f"{self._prefix}/answer", complete)
        if "error" in answer:
            return answer, []
        return answer, from_lowest(self._process_set, f"{self._prefix}/numbers", lambda: numbers)

    def _codecs_by_fidelity(self, buckets: Sequence[Bucket]) -> list[str]:
        """Those that somebody named, and that change no bucket's gradient too far.

        The first exchange has no residual yet. Later ones have, so their lengths tell nothing, and the gauge of the
        running job compares angles only.
        """
        choices = [parse_choice(text) for text in dict.fromkeys(self._choices.values())]
        limit: dict[str, float] = {}
        for choice in choices:
            for codec in choice.codecs:
                limit[codec] = max(limit.get(codec, 0.0), choice.cosine_min)
        samples = [s for s in map(self._sample, self._largest(buckets)) if s.any() and s.isfinite().all()]
        found = [[(1.0, 1.0), *(self._agreement.fidelity(s, codec) for s in samples)] for codec in limit]
        cosines = self._agreement.least([min(cosine for cosine, _ in each) for each in found])
        ratios = self._agreement.largest([max(ratio for _, ratio in each) for each in found])
        for codec, cosine, ratio in zip(limit, cosines, ratios):
            if cosine < limit[codec]:
                self._vetoed[codec] = _cosine_text(cosine)
            elif not ratio * limit[codec] <= LENGTH_SLACK:  # so for an infinite one, too
                self._vetoed[codec] = f"it changes the length of the gradient by a factor of {ratio:.3g}"
        return [codec for codec in limit if codec not in self._vetoed]

    def _largest(self, buckets: Sequence[Bucket]) -> list[Bucket]:
        ours = [bucket for bucket in buckets if self._is_ours(bucket)]
        return sorted(ours, key=lambda bucket: -bucket.flat.numel())[:SAMPLED_BUCKETS]

    def _sample(self, bucket: Bucket) -> torch.Tensor:
        """The last gradients, which are the same on all ranks."""
        views = [view for name, view in bucket.element_views() if name in self._choices]
        reals = [torch.view_as_real(view) if view.is_complex() else view for view in views]
        return torch.cat([real.detach().reshape(-1) for real in reals])[:SAMPLE_ELEMENTS].cpu().float()

    def _is_ours(self, bucket: Bucket) -> bool:
        return any(slot.name in self._choices for slot in bucket.slots)

    # ---- question and answer

    def _now(
        self, buckets: Sequence[Bucket], order: list[int], layer_parameters: list[list[int]]
    ) -> tuple[dict[str, Any], list[int]]:
        """The groups of layers that run now, and the bucket of each."""
        found = layers_of_buckets(self._state, order, layer_parameters)
        dense = [at for at, (number, _) in enumerate(found) if not self._is_ours(buckets[number])]
        groups = [layers for _, layers in found]
        now = {"waits": self._state.exchange.waits, "groups": groups, "dense": dense}
        return now, [number for number, _ in found]

    def _plan_of(
        self, chosen: list[int], numbers: list[int], codecs: list[str], buckets: Sequence[Bucket]
    ) -> StepPlan:
        """The buckets that there are, with these codecs."""
        names = [(slot.name, number) for number, bucket in enumerate(buckets) for slot in bucket.slots]
        by_bucket = {number: codecs[codec - 1] for number, codec in zip(numbers, chosen) if codec}
        return StepPlan(
            self._state.exchange.waits, tuple(name for name, _ in names), dict(names),
            why=self._state.plan.why if self._state.plan is not None else "",
            codecs=by_bucket, gauge_every=GAUGE_EVERY,
        )  # fmt: skip

    # ---- what is chosen

    def _settle_on(self, trials: Trials) -> None:
        best = trials.best
        tried = [
            f"{_codecs_text(plan)} {seconds * 1e3:.1f} ms"
            for plan, seconds in zip(self._plans[1:], trials.found[1:])
            if plan is not None
        ]
        dense = f"dense {trials.first_seconds * 1e3:.1f} ms"
        self.is_settled = True
        if best == 0:
            return self._explain(f"no codec shortened the step: {dense}, {', '.join(tried)}")
        others = [one for number, one in enumerate(tried, 1) if number != best]
        self._explain(f"a step takes {', '.join([tried[best - 1], dense, *others])}")

    def _stay_dense(self, why: str) -> None:
        self.is_settled = True
        self._explain(why)

    def _explain(self, why: str) -> None:
        """For exchange_plan() and `gradbus status --tensors`."""
        vetoes = [f"{codec} is left out: {why_not}" for codec, why_not in self._vetoed.items()]
        self.why = "; ".join([why, *vetoes])
        tensors = {bucket.spec[0]: self._reason_of(bucket) for bucket in self._state.exchange.buckets}
        reasons = {"want": "explain", "why": tensors}
        ask_for_all(self._process_set, f"{self._prefix}/why", lambda: reasons)

    def _reason_of(self, bucket: Bucket) -> str:
        if not self._is_ours(bucket):
            return "its codec was not left to the training"
        is_hidden = not bucket.compressed and self._is_compressing
        return f"dense, because its exchange is hidden or short; {self.why}" if is_hidden else self.why

    @property
    def _is_compressing(self) -> bool:
        plan = self._state.plan
        return plan is not None and bool(plan.codecs)

    # ---- the gauge

    def _watch(self, optimizer: Any) -> None:
        """Takes a codec back that turns gradients too far by now."""
        if not self._is_compressing:
            return
        self._watched += 1
        if self._watched < WATCH_EVERY:
            return
        self._state.attendance.require_all()
        self._watched = 0
        plan: StepPlan = self._state.plan
        measured = self._measured()
        refused = {
            plan.group_of[bucket.slots[0].name]: measured[bucket.spec[0]]
            for bucket in self._state.exchange.buckets
            if bucket.spec[0] in measured and measured[bucket.spec[0]] < self._limit_of(bucket)
        }
        if refused:
            self._vetoed.update({plan.codecs[group]: _cosine_text(cosine) for group, cosine in refused.items()})
            kept = {group: codec for group, codec in plan.codecs.items() if group not in refused}
            self._apply(optimizer, dataclasses.replace(plan, codecs=kept))
            self._explain("the gauge of the running job decided")

    def _limit_of(self, bucket: Bucket) -> float:
        return max(parse_choice(self._choices[s.name]).cosine_min for s in bucket.slots if s.name in self._choices)

    def _measured(self) -> dict[str, float]:
        """The newest cosine of each compressed bucket, as far as the gauge has one."""
        names = [bucket.spec[0] for bucket in self._state.exchange.buckets if bucket.compressed][:BUCKETS_WATCHED]
        question = {"want": "fidelity", "tensors": names}
        answer = ask_for_all(self._process_set, f"{self._prefix}/gauge", lambda: question)
        return {name: one["cosine"] for name, one in answer.get("fidelity", {}).items()}


def checked(asked: str | None, process_set: ProcessSet) -> str | None:
    """A compression as it is. Raises InvalidError, on all ranks for a choice of codecs that is wrong."""
    asked = checked_compression(asked, "DistributedOptimizer", may_choose=True)
    if asked is None or not is_choice(asked):
        return asked
    question = {"want": "check_codecs", "codecs": parse_choice(asked).codecs}
    error = ask_for_all(process_set, "gradbus.codecs", lambda: question).get("error", "")
    if "GB-O910" in error:
        raise InvalidError(error)
    return asked


def choices_of(state: Any) -> dict[str, str]:
    """By parameter: the text that leaves its codec to the training. Others are not in it."""
    session = session_of(state.settings.process_set, "DistributedOptimizer")
    found: dict[str, str] = {}
    for (name, parameter), _ in state.parameters:
        if parameter in state.settings.sparse or issubclass(state.plain_class, torch.optim.SparseAdam):
            continue
        asked = asked_compression(state.settings.compression, session, info_of(name, parameter), parameter)
        if is_choice(asked):
            found[name] = asked
    return found


def _cosine_text(cosine: float) -> str:
    return f"its cosine is {cosine:.2f}"


def _codecs_text(plan: StepPlan) -> str:
    """"int8 for 3 buckets"."""
    counts: dict[str, int] = {}
    for codec in plan.codecs.values():
        counts[codec] = counts.get(codec, 0) + 1
    return " and ".join(f"{codec} for {count} bucket{'s' * (count > 1)}" for codec, count in counts.items())

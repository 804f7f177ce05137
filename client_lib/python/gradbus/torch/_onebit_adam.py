"""1-bit Adam and 0/1 Adam: Adam that sends signs of its momentum instead of gradients.

Adam divides by the root of a mean of squares. A codec in front of it would feed it signs, whose squares are all alike.
So both exchange dense gradients until that mean is known, then keep it, and from then on exchange what is linear:

* ``OneBitAdam`` (Tang et al. 2021): the momentum, each step.
* ``ZeroOneAdam`` (Lu et al. 2022): the sum of several steps, and each rank steps on its own in between.

The residuals of error feedback are in the agents, as for any other compressed tensor. Main thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch

from .._errors import bad_argument
from .._process_sets import ProcessSet, global_process_set
from ._momentum_adam import MomentumAdam
from ._vector_exchange import Vectors

Closure = Callable[[], Any]


def _clear_unused(vectors: Vectors, squares: Vectors) -> None:
    """An element whose gradient was always zero must not move. Signs have no zero."""
    for vector, square in zip(vectors, squares):
        vector.masked_fill_(square == 0, 0)


class OneBitAdam(MomentumAdam):
    """Adam whose momentum is exchanged with a codec, after steps with dense gradients (Tang et al. 2021).

    It exchanges by itself: do not wrap it in DistributedOptimizer. All ranks make it over the same parameters, in the
    same order, after broadcast_parameters().

    Args:
        params, lr, betas, eps, weight_decay: as torch.optim.AdamW. Parameters are float32.
        warmup_steps: steps with dense gradients. Then the mean of squared gradients stays as it is. It should be
            well over 1 / (1 - betas[1]) steps, or 15 to 25 % of the training.
        compression: of the momentum, between nodes; any codec with error feedback.
        process_set: the ranks that share this model.

    state_dict() has this rank's residuals in it: all ranks call it and save a file each, or all call
    ``gradbus.torch.state(optimizer)``, which is the same for any number of ranks. One rank alone saves plain_state(),
    without residuals. Raises InvalidError (arguments), MismatchError (other parameters on another rank). step() raises
    PeerLostError, TimeoutError, and BusyError once a step has failed: make a new optimizer then.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        warmup_steps: int = 1000,
        compression: str = "onebit:block=2048",
        process_set: ProcessSet = global_process_set,
    ) -> None:
        if warmup_steps < 1:
            raise bad_argument(f"OneBitAdam: warmup_steps is {warmup_steps}", "use at least one step")
        self._warmup_steps = warmup_steps
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, defaults, compression, process_set, ["momentum"])

    @torch.no_grad()
    def step(self, closure: Closure | None = None) -> Any:  # type: ignore[override,unused-ignore]
        """One step. With a closure, it is evaluated once."""
        self._exchange.refuse_after_failure("step()")
        with torch.enable_grad():
            loss = None if closure is None else closure()
        momenta, squares = self._states("exp_avg", "exp_avg_sq")
        gradients = self._gradients()
        step = self._advance()
        if step <= self._warmup_steps:
            self._exchange.mean("gradient", gradients)
            self._accumulate(momenta, gradients)
            self._accumulate_squares(squares, gradients)
        else:
            self._accumulate(momenta, gradients)
            self._exchange.mean("momentum", momenta)
            _clear_unused(momenta, squares)
        self._move(momenta, self._divisors(squares, min(step, self._warmup_steps)), step)
        return loss


class ZeroOneAdam(MomentumAdam):
    """0/1 Adam (Lu et al. 2022): squares are updated ever more rarely, then ranks step on their own in between.

    * Until ``freeze_step``: gradients are exchanged with the codec. Steps that update the mean of squares exchange
      dense ones. Updates follow each other after 1, 2, 4, ... steps, and the interval doubles after
      ``variance_scaler`` updates.
    * After it: each rank steps with its own momentum. From time to time all ranks exchange the sum of their steps with
      the codec, and have the same parameters again. That interval doubles every ``local_step_scaler`` steps, up to
      ``local_steps_max``.

    Call flush() on all ranks before an evaluation, and before a checkpoint of one rank's parameters. state_dict() also
    holds where a rank is between two exchanges, for a checkpoint of each rank. All else is as in OneBitAdam.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        freeze_step: int = 1000,
        variance_scaler: int = 16,
        local_step_scaler: int = 1000,
        local_steps_max: int = 16,
        compression: str = "onebit:block=2048",
        process_set: ProcessSet = global_process_set,
    ) -> None:
        numbers = {"freeze_step": freeze_step, "variance_scaler": variance_scaler,
                   "local_step_scaler": local_step_scaler, "local_steps_max": local_steps_max}  # fmt: skip
        for name, number in numbers.items():
            if number < 1:
                raise bad_argument(f"ZeroOneAdam: {name} is {number}", "use at least one step")
        self._numbers = numbers
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        counts = {"variance_updates": 0, "variance_due": 1, "rates": 0.0, "local_steps": 0}
        super().__init__(params, {**defaults, **counts}, compression, process_set, ["coded", "way"])

    @torch.no_grad()
    def step(self, closure: Closure | None = None) -> Any:  # type: ignore[override,unused-ignore]
        """One step. With a closure, it is evaluated once."""
        self._exchange.refuse_after_failure("step()")
        with torch.enable_grad():
            loss = None if closure is None else closure()
        step = self._advance()
        if step <= self._numbers["freeze_step"]:
            self._step_together(step)
        else:
            self._step_alone(step)
            past = step - self._numbers["freeze_step"] - 1
            interval = min(self._numbers["local_steps_max"], 2 ** min(past // self._numbers["local_step_scaler"], 30))
            if self.param_groups[0]["local_steps"] >= interval:
                self.flush()
        return loss

    def _step_together(self, step: int) -> None:
        momenta, squares = self._states("exp_avg", "exp_avg_sq")
        gradients = self._gradients()
        counts = self.param_groups[0]
        if step >= counts["variance_due"]:
            self._exchange.mean("gradient", gradients)
            self._accumulate_squares(squares, gradients)
            updates = counts["variance_updates"] + 1
            interval = 2 ** min((updates - 1) // self._numbers["variance_scaler"], 30)
            for group in self.param_groups:
                group.update(variance_updates=updates, variance_due=step + interval)
        else:
            self._exchange.mean("coded", gradients)
            _clear_unused(gradients, squares)
        self._accumulate(momenta, gradients)
        self._move(momenta, self._divisors(squares, counts["variance_updates"]), step)

    def _step_alone(self, step: int) -> None:
        momenta, squares, bases = self._states("exp_avg", "exp_avg_sq", "base")
        if self.param_groups[0]["local_steps"] == 0:
            for base, parameter in zip(bases, self._parameters()):
                base.copy_(parameter)
        gradients = self._gradients()
        _clear_unused(gradients, squares)
        self._accumulate(momenta, gradients)
        self._move(momenta, self._divisors(squares, self.param_groups[0]["variance_updates"]), step)
        for group in self.param_groups:
            group["rates"] += group["lr"] / (1 - group["betas"][0] ** step)
            group["local_steps"] += 1

    @torch.no_grad()
    def flush(self) -> int:
        """Makes the parameters of all ranks equal, bit for bit. Returns how many steps were exchanged."""
        self._exchange.refuse_after_failure("flush()")
        local_steps = int(self.param_groups[0]["local_steps"])
        if local_steps == 0:
            return 0
        momenta, squares, bases = self._states("exp_avg", "exp_avg_sq", "base")
        divisors = self._divisors(squares, self.param_groups[0]["variance_updates"])
        # The way of this rank, before it was divided: a sum of momenta times rates.
        ways = [(base - p).mul_(divisor) for base, p, divisor in zip(bases, self._parameters(), divisors)]
        self._exchange.mean("way", ways)
        for group, momentum, square, way, base, divisor, parameter in zip(
            self._groups(), momenta, squares, ways, bases, divisors, self._parameters()
        ):
            used = square != 0  # others have moved by weight decay only, alike on all ranks
            parameter.copy_(torch.where(used, base - way / divisor, parameter))
            if group["rates"] > 0 and math.isfinite(group["rates"]):
                momentum.copy_(torch.where(used, way / group["rates"], momentum))
        for group in self.param_groups:
            group.update(rates=0.0, local_steps=0)
        return local_steps

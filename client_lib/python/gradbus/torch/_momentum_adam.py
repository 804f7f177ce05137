"""What 1-bit Adam and 0/1 Adam have in common: the state, the exchange, and Adam's step. Main thread."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from .._errors import MismatchError, TimeoutError, bad_argument
from .._ops import checked_compression
from .._process_sets import ProcessSet, session_of
from ._state.residual_state import CompressionState
from ._vector_exchange import VectorExchange, Vectors

_SECONDS_UNTIL_WARNING = 10.0


@contextlib.contextmanager
def _needs_all_ranks(verb: str, alone: str) -> Iterator[None]:
    """Says so while it waits for other ranks, and when they do something else. ``alone``: what one rank uses."""
    step = f"call {verb} on all ranks; on one rank use {alone}"
    text = f"gradbus: {verb} of this rank waits for other ranks | next: {step}"
    warning = threading.Timer(_SECONDS_UNTIL_WARNING, lambda: warnings.warn(text, stacklevel=2))
    warning.daemon = True
    warning.start()
    try:
        yield
    except (MismatchError, TimeoutError) as error:
        raise type(error)(f"{error.what} | next: {step}") from error
    finally:
        warning.cancel()


class MomentumAdam(torch.optim.Optimizer):
    """The base of both."""

    def __init__(
        self,
        params: Iterable[Any],
        defaults: dict[str, Any],
        compression: str,
        process_set: ProcessSet,
        coded: Sequence[str],
    ) -> None:
        """``coded``: what is exchanged with the codec. Gradients are exchanged without it."""
        self._name = type(self).__name__
        self._is_complete = False
        beta1, beta2 = defaults["betas"]
        if not (defaults["lr"] >= 0 and 0 <= beta1 < 1 and 0 <= beta2 < 1 and defaults["eps"] > 0):
            raise bad_argument(
                f"{self._name}: lr is {defaults['lr']}, betas are {defaults['betas']}, eps is {defaults['eps']}",
                "use lr >= 0, betas in [0, 1) and eps > 0",
            )
        session_of(process_set, self._name)  # refuse early when init() is missing
        codec = checked_compression(compression, self._name) or "none"
        self._process_set = process_set
        super().__init__(params, {**defaults, "steps": 0})
        self._is_complete = True
        # A wrong codec, or other parameters on another rank, are said now and not after the warm-up.
        codecs = {"gradient": "none", **dict.fromkeys(coded, codec)}
        self._exchange = VectorExchange(self._name, self._parameters(), codecs, process_set)

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """A GradScaler asks. It looks at gradients of this rank, so a rank would leave a step out alone."""
        raise bad_argument(
            f"{self._name}: a gradient scaler steps, and looks for infinities before the exchange",
            "use torch.autocast with bfloat16, which needs no scaler",
        )

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Only the constructor adds groups, because all parameters travel together."""
        if self._is_complete:
            raise bad_argument(f"{self._name}: add_param_group()", "make a new optimizer of all parameters")
        super().add_param_group(param_group)
        for number, parameter in enumerate(self.param_groups[-1]["params"]):
            if parameter.dtype != torch.float32:
                raise bad_argument(
                    f"{self._name}: parameter {number} has dtype {str(parameter.dtype).removeprefix('torch.')}",
                    "keep parameters in float32, and use torch.autocast for half precision",
                )

    def _parameters(self) -> list[torch.nn.Parameter]:
        return [parameter for group in self.param_groups for parameter in group["params"]]

    def _states(self, *names: str) -> list[list[torch.Tensor]]:
        """The vectors of these names, of all parameters. New ones are zeros."""
        for parameter in self._parameters():
            state = self.state[parameter]
            for name in names:
                if name not in state:
                    state[name] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        return [[self.state[parameter][name] for parameter in self._parameters()] for name in names]

    def _gradients(self) -> list[torch.Tensor]:
        """Of this rank. A parameter that this rank did not use has zeros."""
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in self._parameters()]
        if any(gradient.is_sparse for gradient in gradients):
            raise bad_argument(f"{self._name}: a gradient is sparse", "make that layer with sparse=False")
        return gradients

    def _advance(self) -> int:
        """The number of this step, from 1 on."""
        for group in self.param_groups:
            group["steps"] += 1
        return int(self.param_groups[0]["steps"])

    def _per_parameter(self, name: str) -> list[Any]:
        """An option of each parameter's group."""
        return [group[name] for group in self.param_groups for _ in group["params"]]

    def _accumulate(self, momenta: Vectors, gradients: Vectors) -> None:
        for momentum, gradient, (beta1, _) in zip(momenta, gradients, self._per_parameter("betas")):
            momentum.mul_(beta1).add_(gradient, alpha=1 - beta1)

    def _accumulate_squares(self, squares: Vectors, gradients: Vectors) -> None:
        for square, gradient, (_, beta2) in zip(squares, gradients, self._per_parameter("betas")):
            square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)

    def _divisors(self, squares: Vectors, updates: int) -> list[torch.Tensor]:
        """What the momentum is divided by, after so many updates of the squares."""
        options = zip(squares, self._per_parameter("betas"), self._per_parameter("eps"))
        return [(square / (1 - beta2**updates)).sqrt_().add_(eps) for square, (_, beta2), eps in options]

    def _move(self, momenta: Vectors, divisors: Vectors, step: int) -> None:
        """Adam's step, with decoupled weight decay. Frozen parameters stay as they are, as in torch.optim.AdamW."""
        for parameter, momentum, divisor, group in zip(self._parameters(), momenta, divisors, self._groups()):
            if not parameter.requires_grad:
                continue
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
            parameter.addcdiv_(momentum, divisor, value=-group["lr"] / (1 - group["betas"][0] ** step))

    def _groups(self) -> list[dict[str, Any]]:
        return [group for group in self.param_groups for _ in group["params"]]

    @torch.no_grad()
    def compression_state(self) -> CompressionState:
        """This rank's share of what agents remember of compression, as that of DistributedOptimizer."""
        return self._exchange.compression_state()

    @torch.no_grad()
    def load_compression_state(self, state: CompressionState) -> None:
        """Restores a share on all ranks, and replaces the current residual state.

        For another number of ranks see ``reshard_compression_state``. Raises InvalidError (of another model).
        """
        self._exchange.load_compression_state(state)

    def plain_state(self) -> dict[str, Any]:
        """As state_dict(), without residuals. Any rank may call it alone."""
        self._exchange.refuse_after_failure("plain_state()")
        return super().state_dict()

    def state_dict(self) -> dict[str, Any]:
        """With this rank's residuals. All ranks call it between two steps and save a file each.

        One rank alone calls plain_state(). Raises MismatchError or TimeoutError when other ranks do not call it.
        """
        self._exchange.refuse_after_failure("state_dict()")
        with _needs_all_ranks("state_dict()", "plain_state()"):
            residuals = {"rank": self._exchange.rank, "shares": self.compression_state()}
        return {**self.plain_state(), "residuals": residuals}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores what state_dict() returned on this rank. All ranks call it.

        The residuals of another rank are left out, so one rank's file is enough to go on, with residuals of zeros on
        the others.
        """
        self._exchange.refuse_in_flight("load_state_dict()")
        plain = dict(state_dict)
        residuals = plain.pop("residuals", {"rank": self._exchange.rank, "shares": {}})
        super().load_state_dict(plain)
        self._exchange.begin_anew()
        with torch.no_grad(), _needs_all_ranks("load_state_dict()", "plain_state()'s result"):
            of_others = residuals["rank"] != self._exchange.rank
            self._exchange.load_compression_state(residuals["shares"], of_others)

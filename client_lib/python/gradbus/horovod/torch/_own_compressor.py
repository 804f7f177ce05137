"""DistributedOptimizer(compression=...) with a compressor of the script.

It runs on the ranks, so all gradients are exchanged in step() or synchronize(), and not during backward().
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ..._errors import bad_argument
from ..._ops import ReduceOp
from ..._process_sets import ProcessSet
from ...torch._arguments import check_positive
from ...torch._exchangers import put_in_front
from ...torch._step import amp_scaling_after
from ._reductions import grouped_allreduce


def make_compressed(
    optimizer: torch.optim.Optimizer, compressor: Any, passes: int, op: ReduceOp, process_set: ProcessSet
) -> torch.optim.Optimizer:
    """The same object with a step() that begins with the exchange. Until then gradients are those of this rank."""
    check_positive("backward_passes_per_step", passes)
    base = type(optimizer)
    changed: Any = optimizer
    changed._counted = put_in_front(changed, type(base.__name__, (_CompressedSteps, base), {}))
    changed._exchange_by = (compressor, op, process_set)
    return optimizer


def _refuse_scaler(optimizer: Any) -> None:
    if not optimizer._is_exchanged:
        raise bad_argument(
            "a gradient scaler steps, and looks for infinities before the exchange, which an own compressor makes in "
            "step()",
            "call optimizer.synchronize() before, and scaler.step() in `with optimizer.skip_synchronize():`",
        )


class _CompressedSteps:
    _exchange_by: tuple[Any, ReduceOp, ProcessSet]
    _counted: Callable[..., Any] | None  # the plain step in a scheduler's wrapper
    _skips = False
    _is_exchanged = False
    param_groups: list[dict[str, Any]]
    _step_supports_amp_scaling = amp_scaling_after(_refuse_scaler)

    @torch.no_grad()
    def synchronize(self) -> None:
        """Exchanges the gradients. Every ``.grad`` is the result afterwards; unused parameters count as zeros."""
        compressor, op, process_set = self._exchange_by
        parameters = [p for group in self.param_groups for p in group["params"] if p.requires_grad]
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        dense = [gradient.to_dense() if gradient.is_sparse else gradient for gradient in gradients]
        results = grouped_allreduce(
            dense, name="compressed", op=op, compression=compressor, process_set=process_set
        )
        for parameter, result in zip(parameters, results):
            parameter.grad = result
        self._is_exchanged = True

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """In this block step() uses the gradients as they are."""
        self._skips = True
        try:
            yield
        finally:
            self._skips = False

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """The exchange and a step. With a closure, each evaluation is followed by an exchange."""
        inner = self._counted or super().step  # type: ignore[misc]
        if self._skips:
            self._is_exchanged = False
            return inner(closure)
        if closure is not None:
            return inner(functools.partial(self._evaluate, closure))
        if self._is_exchanged:
            warnings.warn(
                "optimizer.step() called without optimizer.skip_synchronize() after optimizer.synchronize(): gradients"
                " are exchanged twice",
                stacklevel=2,
            )
        self.synchronize()
        self._is_exchanged = False
        return inner()

    def _evaluate(self, closure: Callable[[], Any]) -> Any:
        loss = closure()
        with torch.no_grad():
            self.synchronize()
        self._is_exchanged = False
        return loss

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Gradients add up until step(), so this changes nothing."""

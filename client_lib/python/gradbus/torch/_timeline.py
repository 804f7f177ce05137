"""Spans of the training loop in a trace of the job: ``gradbus run --timeline``, ``gradbus trace``. Ranges of PyTorch's
profiler, which NVTX shows, too.

Without a trace or a profiler, a call costs less than a microsecond.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch

from .. import _session

Function = TypeVar("Function", bound=Callable[..., Any])


def trace_now() -> int:
    """The time for the begin of a span in nanoseconds; 0 while the job is not traced."""
    return time.monotonic_ns() if _session.is_traced() else 0


def trace_span(name: str, begin: int) -> None:
    """A span from ``begin`` (trace_now()) to now. Nothing if ``begin`` is 0."""
    if begin != 0 and _session.is_initialized():
        _session.current().trace(name, begin, time.monotonic_ns())


class PassSpan:
    """The backward pass. A look at the job costs microseconds, so the pass is traced if the last step was."""

    def __init__(self) -> None:
        self.is_traced = True  # perhaps
        self._begin = 0

    def begin(self) -> None:
        """The first gradient has come."""
        self._begin = trace_now() if self.is_traced else 0

    def end(self) -> None:
        """The last one has."""
        trace_span("backward", self._begin)


def profiled(name: str) -> Callable[[Function], Function]:
    """The function is a range of torch.profiler, and of NVTX under torch.autograd.profiler.emit_nvtx()."""

    def decorated(function: Function) -> Function:
        @functools.wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            if not torch.autograd._profiler_enabled():  # type: ignore[attr-defined]
                return function(*arguments, **options)
            with torch.profiler.record_function(name):
                return function(*arguments, **options)

        return cast(Function, call)

    return decorated


class _Spans:
    """The forward and backward spans of one model."""

    def __init__(self) -> None:
        self._begins: dict[str, int] = {}
        self._last_gradient = 0  # of the current backward pass

    def before(self, name: str, *_: Any) -> None:
        self._begins[name] = trace_now()
        if name == "forward":
            self._last_gradient = 0

    def after(self, name: str, *_: Any) -> None:
        trace_span(name, self._begins.pop(name, 0))
        if name == "forward":
            self._last_gradient = trace_now()

    def gradient(self, name: str, gradient: torch.Tensor) -> torch.Tensor:
        """A parameter's gradient has been computed: since the last one, its layer was at work."""
        if self._last_gradient != 0:
            trace_span(f"{name} backward", self._last_gradient)
            self._last_gradient = trace_now()
        return gradient


def trace_layers(model: torch.nn.Module) -> None:
    """Adds the model's layers to traces of this job: "forward", and a span for each layer that has no children.

    The backward span of a parameter goes from the previous parameter's gradient to its own. Call it once,
    before training. The hooks cost about a microsecond per layer and pass, and nothing changes in the results.
    """
    spans = _Spans()
    for name, module in model.named_modules():
        if name and any(True for _ in module.children()):
            continue
        shown = name or "forward"
        module.register_forward_pre_hook(functools.partial(_before, spans, shown))
        module.register_forward_hook(functools.partial(_after, spans, shown))
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            parameter.register_hook(functools.partial(spans.gradient, name))


def _before(spans: _Spans, name: str, *_: Any) -> None:
    spans.before(name)


def _after(spans: _Spans, name: str, *_: Any) -> None:
    spans.after(name)

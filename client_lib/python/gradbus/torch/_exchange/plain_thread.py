"""Calls that must not depend on what the caller's thread has set: autocast, inference mode, transforms, traces.

A step that is put off runs where a parameter is used next. That may be within ``torch.autocast``,
``torch.inference_mode()``, ``torch.func.grad`` or ``torch.jit.trace``. All of these are settings of a thread, so a new
thread has none of them.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import torch

from ..._handles import standing_for_main_thread
from .uncompiled import keep_module_out_of_compiler

_transform_level: Callable[[], Any] | None = getattr(
    getattr(torch._C, "_functorch", None), "peek_interpreter_stack", None
)
_casts: Callable[[], bool] = getattr(torch._C, "_is_any_autocast_enabled", None) or (
    lambda: torch.is_autocast_enabled() or torch.is_autocast_cpu_enabled()
)
_modes: Callable[[], int] | None = getattr(torch._C, "_len_torch_dispatch_stack", None)


def is_plain() -> bool:
    """Whether operations of this thread do what they do in a new one."""
    return not (
        torch.is_inference_mode_enabled()
        or _casts()
        or torch._C._get_tracing_state() is not None
        or (_transform_level is not None and _transform_level() is not None)
        or (_modes is not None and _modes() > 0)
    )


def call_plainly(call: Callable[[], None]) -> None:
    """Here, or in another thread while this one waits for it. Raises what ``call`` does."""
    if is_plain():
        call()
        return
    errors: list[BaseException] = []
    stream = torch.cuda.current_stream() if torch.cuda.is_initialized() else None

    def run() -> None:
        try:
            with standing_for_main_thread(), contextlib.nullcontext() if stream is None else torch.cuda.stream(stream):
                call()
        except BaseException as error:  # noqa: BLE001 (the caller gets it)
            errors.append(error)

    thread = threading.Thread(target=run, name="gradbus-step", daemon=True)
    thread.start()
    interrupt: list[KeyboardInterrupt] = []
    while thread.is_alive():
        try:
            thread.join()
        except KeyboardInterrupt as error:  # it ends the wait of that thread, too
            interrupt.append(error)
    for raised in [*errors, *interrupt]:
        raise raised


keep_module_out_of_compiler(__name__)

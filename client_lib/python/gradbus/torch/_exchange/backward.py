"""The end of a backward pass: called once for each outermost backward() that brought gradients.

A gradient hook calls ``expect()``; when the engine has run the whole graph, it calls ``exchange_begin()``
of everyone who expected it, then ``exchange_end()`` of everyone, in the order in which they were made.
So every rank starts all of its exchanges before it waits for the first one.

Reentrant checkpoints run a backward() inside of another. The engine calls back at the end of the inner
one; the call is then passed on to the graph around it, by a hook on the functions that run there next.
Where there are none, nothing is called: the optimizer's step() exchanges what backward() did not.
"""

from __future__ import annotations

import itertools
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any, Protocol

import torch

_queue_callback = torch.autograd.Variable._execution_engine.queue_callback  # type: ignore[attr-defined]
_current_node = getattr(torch._C, "_current_autograd_node", None)  # torch >= 2.1
_orders = itertools.count()


def next_order() -> int:
    """Of an exchanger, as it is made."""
    return next(_orders)


class Exchanger(Protocol):
    """Wants to know when a backward pass has ended."""

    order: int  # of its making, the same on every rank

    def exchange_begin(self) -> None:
        """All gradients of this pass are there. Waits for nobody that has not called it as well."""

    def exchange_end(self) -> None:
        """Everyone has begun."""


class BackwardEnd:
    """One exchanger's view: expect() from its gradient hooks."""

    def __init__(self, exchanger: Exchanger) -> None:
        self.exchanger = weakref.ref(exchanger)  # while it lives
        # The call that is pending. The engine holds it. When backward() fails, it is freed and not called.
        self.pending: Callable[[], _Call | None] = _nothing

    def expect(self) -> None:
        """Within a backward pass: its end is called, once. Nothing changes if ``pending()`` is there."""
        if self.pending() is not None:
            return
        call: _Call | None = getattr(_of_thread, "call", _nothing)()
        if call is None or not call.is_open:
            call = _Call()
            _of_thread.call = weakref.ref(call)
            _queue_callback(call)
        call.ends.append(self)
        self.pending = weakref.ref(call)


def _nothing() -> None:
    return None


_of_thread = threading.local()  # its pending call


class _Call:
    """What the engine calls. GPUs' hooks run in other threads than the end, hence no thread is kept."""

    def __init__(self) -> None:
        self.ends: list[BackwardEnd] = []
        self.is_open = True  # more can be added
        self._hooks: list[Any] = []

    def __call__(self) -> None:
        around = _node_around()
        if around is not None:
            self._pass_on(around)
            return
        self.is_open = False
        ends, self.ends = self.ends, []
        for end in ends:
            end.pending = _nothing
        exchangers = [exchanger for end in ends if (exchanger := end.exchanger()) is not None]
        if len(exchangers) > 1:
            exchangers.sort(key=lambda exchanger: exchanger.order)
        for exchanger in exchangers:
            exchanger.exchange_begin()
        for exchanger in exchangers:
            exchanger.exchange_end()

    def _pass_on(self, around: Any) -> None:
        following = [function for function, _ in around.next_functions if function is not None]
        self._hooks = [f.register_hook(lambda *_: self._queue_again()) for f in following]

    def _queue_again(self) -> None:
        hooks, self._hooks = self._hooks, []
        for hook in hooks:
            hook.remove()
        if hooks:
            _queue_callback(self)


def _node_around() -> Any:
    """The function within whose backward this graph was run, or None: this graph is the outermost."""
    if _current_node is not None:
        return _current_node()
    frame = sys._getframe()
    apply = torch.autograd.function.BackwardCFunction.apply.__code__
    while frame is not None and frame.f_code is not apply:
        frame = frame.f_back  # type: ignore[assignment]
    return None if frame is None else frame.f_locals["self"]

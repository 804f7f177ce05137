"""What the ``*_async`` functions return: an operation in flight and how to make its result."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from . import _core
from ._watch import wait_for

T = TypeVar("T")


class Handle(Generic[T]):
    """An operation in flight. ``poll(handle)`` asks, ``synchronize(handle)`` waits and returns.

    A handle may be synchronized more than once; the result is computed once. One thread at a time.
    """

    def __init__(
        self, operation: _core.Operation, finish: Callable[[_core.Operation], T]
    ) -> None:
        self._operation: _core.Operation | None = operation
        self._finish = finish
        self._result: Any = None
        self._when_waited: Callable[[], object] | None = None

    def when_waited(self, call: Callable[[], object]) -> None:
        """Has ``call`` run once, when the operation has been waited for."""
        self._when_waited = call

    def poll(self) -> bool:
        """True when ``wait`` would not block (it returns the result or raises the error)."""
        return self._operation is None or self._operation.poll()

    def wait(self, timeout_ms: int | None = None) -> T:
        """The result. Raises TimeoutError after ``timeout_ms`` (the operation is still in flight)."""
        if self._operation is not None:
            wait_for(self._operation, timeout_ms)
            self._result = self._finish(self._operation)
            self._operation = None
            if self._when_waited is not None:
                self._when_waited()
        return self._result  # type: ignore[no-any-return]


@contextlib.contextmanager
def standing_for_main_thread() -> Iterator[None]:
    """In this block Ctrl-C ends waits of this thread.

    Python interrupts its main thread only, and that one waits in native code until the operations of a compiled
    program are performed by threads such as this one.
    """
    if threading.current_thread() is threading.main_thread():
        yield
        return
    _core.stand_for_main_thread(True)
    try:
        yield
    finally:
        _core.stand_for_main_thread(False)

"""Operations in flight as torch.distributed sees them. Any thread.

A Work is completed by the first thread that waits for it: it ends the wait for the daemons and puts the results
where the caller wants them. Nobody waits in the name of a future, so ``get_future`` gives the work to a Completer.
"""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C._distributed_c10d import Work as _TorchWork

from ... import _core
from ..._errors import GradbusError, TimeoutError
from .._completer import Completer
from ._messages import for_torch
from ._rendezvous import milliseconds

Finish = Callable[[], None]
# An error in a callback of a future aborts a process that has begun to end.
process_ends = threading.Event()


class Work(_TorchWork):  # type: ignore[misc]
    """``wait``, ``get_future``, ``is_completed``, ``is_success``, ``exception``, ``result`` and ``source_rank``."""

    def __init__(
        self,
        operation: _core.Operation | None,
        finish: Finish | None,
        outputs: Sequence[torch.Tensor],
        timeout_ms: int,
        completer: Completer | None = None,
        source: int = -1,
    ) -> None:
        """``operation``: None where there is nothing to wait for; ``finish``: puts the results into ``outputs``."""
        super().__init__()
        self._operation = operation
        self._finish = finish
        self._outputs = list(outputs)
        self._deadline = time.monotonic() + timeout_ms / 1000
        self._completer = completer
        self._source = source
        self._lock = threading.Lock()  # of whoever waits
        self._done = operation is None
        self._error: BaseException | None = None
        self._future: torch.futures.Future[Any] | None = None
        self._trigger: torch.futures.Future[Any] | None = None

    # What torch calls.

    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        """True when the outputs hold the results; raises the operation's error.

        ``timeout`` is for this wait, default what is left of the group's. After a TimeoutError of this wait the
        operation is still in flight.
        """
        given = milliseconds(timeout, 0)
        self.complete(given or self._left_ms())
        return True

    def is_completed(self) -> bool:
        """Whether wait() would not block."""
        if self._done or not self._lock.acquire(blocking=False):
            return self._done
        try:
            if not self._done and self._has_ended():
                self._end(0)
        except GradbusError:
            pass  # exception() has it
        finally:
            self._lock.release()
        return self._done

    def is_success(self) -> bool:
        """Whether it has ended without an error."""
        return self._done and self._error is None

    def exception(self) -> BaseException | None:
        """What it has failed with."""
        return self._error

    def result(self) -> list[torch.Tensor]:
        """The outputs, after the wait for them."""
        self.wait()
        return self._outputs

    def source_rank(self) -> int:
        """Of a receive: who has sent."""
        return self._source

    _source_rank = source_rank

    def synchronize(self) -> None:
        """As wait()."""
        self.wait()

    def get_future(self) -> torch.futures.Future[Any]:
        """Its value is the list of outputs; it fails with the operation's error."""
        if self._future is None:
            # An error that is raised in a callback is one for C++, too; set_exception() is seen by Python alone.
            trigger: torch.futures.Future[Any] = torch.futures.Future()
            self._future = trigger.then(lambda _: self._value())
            self._trigger = trigger
            if self._done or self._completer is None:
                self.complete_for_future()
            else:
                self._completer.add(self)
        return self._future

    # What Gradbus calls.

    def complete(self, timeout_ms: int) -> None:
        """As wait()."""
        started = time.monotonic()
        if not self._done:
            if not self._lock.acquire(timeout=timeout_ms / 1000):
                raise self._too_late(timeout_ms)
            try:
                if not self._done:
                    self._end(max(0, timeout_ms - round((time.monotonic() - started) * 1000)))
            finally:
                self._lock.release()
        if self._error is not None:
            raise self._error

    def complete_for_future(self) -> None:
        """Ends it, well or not, and then the future, unless the process ends."""
        try:
            self.complete(self._left_ms())
        except BaseException as error:  # noqa: BLE001 (whoever waits for the future gets it)
            self._error = self._error or error
            self._done = True
        if self._trigger is not None and not process_ends.is_set():
            self._trigger.set_result(None)

    def _value(self) -> list[torch.Tensor]:
        if self._error is not None:
            raise self._error
        return self._outputs

    def _has_ended(self) -> bool:
        return self._operation is not None and self._operation.poll()

    def _wait_for_end(self, timeout_ms: int) -> None:
        if self._operation is not None:
            self._operation.wait(timeout_ms)

    def _end(self, timeout_ms: int) -> None:
        try:
            self._wait_for_end(timeout_ms)
            if self._finish is not None:
                self._finish()
        except TimeoutError:
            raise  # still in flight
        except GradbusError as error:
            self._error = for_torch(error)
            self._done = True
            self._operation = self._finish = None
            raise self._error from None
        self._done = True
        self._operation = self._finish = None

    def _left_ms(self) -> int:
        return max(1, round((self._deadline - time.monotonic()) * 1000))

    def _too_late(self, timeout_ms: int) -> TimeoutError:
        return TimeoutError(
            f"GB-P110 OPERATION_TIMEOUT: the operation did not end within {timeout_ms / 1000:g} s; another thread "
            "waits for it, too | next: wait again, or raise the timeout of the process group"
        )

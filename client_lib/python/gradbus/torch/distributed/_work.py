"""Operations in flight as torch.distributed sees them. Any thread.

A Work is ended by the first thread that waits for it, or by the thread of _progress.py: the results go where the caller
wants them. Nobody waits in the name of a future, so ``get_future`` gives the work to a Completer.
"""

from __future__ import annotations

import contextlib
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
from ._progress import process_ends, progress
from ._rendezvous import Members, milliseconds
from ._wire import wait_for_devices

Finish = Callable[[], None]
_UNSEEN_MAX = 16  # errors of a group that nobody has looked at
_RETRY_MS = 100
_FUTURE_PAUSE_S = 0.0001  # its callbacks run
_making_future = threading.Lock()


class Work(_TorchWork):  # type: ignore[misc]
    """``wait``, ``get_future``, ``is_completed``, ``is_success``, ``exception``, ``result`` and ``source_rank``."""

    is_collective = True

    def __init__(
        self,
        members: Members,
        operation: _core.Operation | None,
        finish: Finish | None,
        outputs: Sequence[torch.Tensor],
        timeout_ms: int,
        completer: Completer | None = None,
        earlier: Sequence[Work] = (),
    ) -> None:
        """``operation``: None where there is nothing to wait for; ``finish``: puts the results into ``outputs``;
        ``earlier``: works that end before this one.
        """
        super().__init__()
        self._members = members
        self._operation = operation
        self._finish = finish
        self._outputs = list(outputs)
        self._deadline = time.monotonic() + timeout_ms / 1000
        self._completer = completer
        self._earlier = earlier
        self._source = -1
        self._lock = threading.Lock()  # of whoever waits
        self._done = operation is None
        self._error: BaseException | None = None
        self._future: torch.futures.Future[Any] | None = None
        self._triggers: list[torch.futures.Future[Any]] = []  # one, until the future is complete
        if operation is not None:
            progress.add(self)

    # What torch calls.

    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        """True when the outputs hold the results; raises the operation's error.

        ``timeout`` is for this wait, default what is left of the group's. After a TimeoutError of this wait the
        operation is still in flight.
        """
        given = milliseconds(timeout, 0)
        try:
            self.complete(given or self._left_ms())
        finally:
            if self._done and self._future is not None:
                self.complete_future()
                _wait_until_complete(self._future)
        return True

    def is_completed(self) -> bool:
        """Whether wait() would not block."""
        if not self.end_if_over() and self.is_late():
            self._give_up(self._too_late(0))
            if self._done and self._triggers:
                progress.add_pending_future(self)
        return self._done

    def is_success(self) -> bool:
        """Whether it has ended without an error."""
        return self._done and self._error is None

    def exception(self) -> BaseException | None:
        """What it has failed with."""
        self._members.unseen.discard(self)
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
        with _making_future:
            if self._future is not None:
                return self._future
            # An error that is raised in a callback is one for C++, too; set_exception() is seen by Python alone.
            trigger: torch.futures.Future[Any] = torch.futures.Future()
            self._future = trigger.then(lambda _: self._value())
            self._triggers.append(trigger)
        if self._done:
            self.complete_future()
        elif self._completer is not None:
            self._completer.add(self)
        return self._future

    # What Gradbus calls.

    def complete(self, timeout_ms: int, elsewhere: bool = False) -> None:
        """As wait(). ``elsewhere``: on a completer's thread, not on that of the caller, whose stream orders work."""
        if not self._done:
            if not self._lock.acquire(blocking=False):
                started = time.monotonic()
                if not self._lock.acquire(timeout=timeout_ms / 1000):
                    raise self._too_late(timeout_ms, "; another thread waits for it, too")
                timeout_ms = max(0, timeout_ms - round((time.monotonic() - started) * 1000))
            try:
                if not self._done:
                    self._end(timeout_ms, elsewhere)
            finally:
                self._lock.release()
            if self._triggers and not elsewhere:
                progress.add_pending_future(self)
        if self._error is not None:
            self._members.unseen.discard(self)
            raise self._error

    def complete_for_future(self) -> None:
        """Ends it, well or not, and then the future."""
        while not self._done:
            try:
                self.complete(max(_RETRY_MS, self._left_ms()), True)
            except BaseException as error:  # noqa: BLE001 (whoever waits for the future gets it)
                self._give_up(error)  # unless another thread waits longer
        self.complete_future()

    def complete_future(self) -> None:
        """Runs the callbacks of the future, unless that has begun or the process ends."""
        try:
            trigger = self._triggers.pop()
        except IndexError:
            return
        progress.remove_pending_future(self)
        if not process_ends.is_set():
            trigger.set_result(None)

    def end_if_over(self, *, unseen: bool = False) -> bool:
        """Whether it has ended; does not wait. ``unseen``: the group keeps an error for its next barrier."""
        if self._done or not self._lock.acquire(blocking=False):
            return self._done
        try:
            if not self._done and self._is_over():
                self._end(0, unseen)
            elif not self._done and self._triggers and self.is_late():
                self._settle(self._too_late(0))
        except TimeoutError:
            pass  # still in flight
        except Exception:  # noqa: BLE001 (exception() has it)
            if unseen and self._future is None and len(self._members.unseen) < _UNSEEN_MAX:
                self._members.unseen.add(self)
        finally:
            self._lock.release()
        if self._done and self._triggers:
            progress.add_pending_future(self)
        return self._done

    def is_of(self, members: Members) -> bool:
        """Whether it is a collective operation of this group."""
        return self.is_collective and self._members is members

    def is_late(self) -> bool:
        """Whether its time is over."""
        return time.monotonic() >= self._deadline

    def _give_up(self, error: BaseException) -> None:
        """This is its end, unless a thread waits for it."""
        if self._lock.acquire(blocking=False):
            try:
                if not self._done:
                    self._settle(error)
            finally:
                self._lock.release()

    def _value(self) -> list[torch.Tensor]:
        if self._error is not None:
            raise self._error
        return self._outputs

    def _is_over(self) -> bool:
        try:
            return all(work.end_if_over() for work in self._earlier) and self._has_ended()
        except GradbusError:
            return True

    def _has_ended(self) -> bool:
        return self._operation is not None and self._operation.poll()

    def _wait_for_end(self, timeout_ms: int) -> None:
        if self._operation is not None:
            try:
                self._operation.wait(timeout_ms)
            except GradbusError as error:
                raise for_torch(error, self._ranks()) from None

    def _end(self, timeout_ms: int, elsewhere: bool) -> None:
        try:
            if self._earlier:
                deadline = time.monotonic() + timeout_ms / 1000
                for work in self._earlier:
                    work.complete(_ms_until(deadline), elsewhere)
                timeout_ms = _ms_until(deadline)
            self._wait_for_end(timeout_ms)
            if self._finish is not None:
                self._finish()
            if elsewhere:
                wait_for_devices(self._outputs)
        except TimeoutError:
            raise  # still in flight
        except GradbusError as error:
            self._settle(for_torch(error))
            raise self._error from None  # type: ignore[misc]
        except Exception as error:
            self._settle(error)
            raise
        self._settle()

    def _settle(self, error: BaseException | None = None) -> None:
        """This is the end."""
        self._error = error
        self._done = True
        self._operation = self._finish = None
        self._earlier = ()
        progress.discard(self)

    def _ranks(self) -> Sequence[int]:
        return self._members.global_ranks

    def _left_ms(self) -> int:
        return max(1, _ms_until(self._deadline))

    def _too_late(self, timeout_ms: int, why: str = "") -> TimeoutError:
        waited = f"within {timeout_ms / 1000:g} s" if timeout_ms else "before its deadline"
        return TimeoutError(
            f"GB-P110 STALLED: the operation did not end {waited}{why}"
            " | next: wait again, or raise the timeout of the process group"
        )


def _wait_until_complete(future: torch.futures.Future[Any]) -> None:
    """Another thread completes it right now, if it is not complete."""
    with contextlib.suppress(Exception):  # whoever asks the future for it gets the error
        while not future.done() and not process_ends.is_set():
            time.sleep(_FUTURE_PAUSE_S)


def _ms_until(deadline: float) -> int:
    return max(0, round((deadline - time.monotonic()) * 1000))

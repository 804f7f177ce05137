"""Writes the curves of a job into loggers of other packages, which it tells by their methods. Main thread."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

from .._errors import bad_argument
from .._session import current
from ._status import StatusQuestion, numbers_of

_Write = Callable[[dict[str, float], int], None]


class JobLogger:
    """Call it after each step; rank 0 writes, and the others do nothing.

    ``loggers``: objects with ``add_scalar`` (TensorBoard's SummaryWriter), ``log_metrics`` (MLflow and every logger
    of Lightning) or ``log`` (a run of W&B). Ranks other than 0 may pass None. A point is written every ``every_s``
    seconds. Raises InvalidError.
    """

    def __init__(self, *loggers: Any, every_s: float = 10.0, prefix: str = "gradbus") -> None:
        session = current()
        self._session = session
        self._writes = session.rank == 0
        self._loggers = [_write_of(logger) for logger in loggers if logger is not None] if self._writes else []
        if self._writes and not self._loggers:
            raise bad_argument("JobLogger: rank 0 has no logger", "pass a SummaryWriter, mlflow, or a run of W&B")
        self._every_s = every_s
        self._prefix = prefix
        self._question = StatusQuestion(session.job)
        self._warned = False
        self._time = time.monotonic()
        self._waited_ns = session.waited_ns()
        self._step: int | None = None  # of the last point
        self._newest = 0

    def __call__(self, step: int) -> dict[str, float] | None:
        """After a step. What was written, by name, or None. It waits for nothing."""
        if not self._writes:
            return None
        self._newest = step
        if self._step is None:
            self._step = step - 1  # time began before this step
        if self._question.is_open:
            job = self._question.answer()
            return None if self._question.is_open else self._write(job)
        if time.monotonic() - self._time >= self._every_s:
            self._question.ask()
        return None

    def close(self) -> dict[str, float] | None:
        """Writes a last point, if there were steps after the one before. The loggers stay open."""
        if not self._writes:
            return None
        self._writes = False
        if self._question.is_open:
            self._question.answer(wait=True)
        if self._step is None or self._step == self._newest:
            return None
        self._question.ask()
        return self._write(self._question.answer(wait=True))

    def _write(self, job: dict[str, Any] | None) -> dict[str, float]:
        numbers = {f"{self._prefix}/{name}": value for name, value in self._numbers(job).items()}
        for write in self._loggers:
            write(numbers, self._newest)
        return numbers

    def _numbers(self, job: dict[str, Any] | None) -> dict[str, float]:
        now, waited_ns = time.monotonic(), self._session.waited_ns()
        exposed, elapsed = (waited_ns - self._waited_ns) / 1e9, now - self._time
        steps = self._newest - (self._step or 0)
        numbers = {"exposed_s": waited_ns / 1e9, "exposed_share": exposed / elapsed}
        if steps > 0:
            numbers["exposed_ms_per_step"] = 1e3 * exposed / steps
        self._time, self._waited_ns, self._step = now, waited_ns, self._newest
        if job is not None:
            return {**numbers, **numbers_of(job)}
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"gradbus: JobLogger writes this rank's waiting only: {self._question.why_not} | next: make "
                "GRADBUS_COORDINATOR and GRADBUS_TOKEN_FILE known to rank 0",
                stacklevel=4,
            )
        return numbers


def _write_of(logger: Any) -> _Write:
    if hasattr(logger, "add_scalar"):

        def add_scalars(numbers: dict[str, float], step: int) -> None:
            for name, value in numbers.items():
                logger.add_scalar(name, value, step)

        return add_scalars
    if hasattr(logger, "log_metrics"):
        return lambda numbers, step: logger.log_metrics(numbers, step=step)
    if hasattr(logger, "log"):
        return lambda numbers, step: logger.log(numbers, step=step)
    raise bad_argument(
        f"JobLogger: {type(logger).__name__} has no add_scalar(), log_metrics() or log()",
        "pass a SummaryWriter, mlflow, a logger of Lightning, or a run of W&B",
    )

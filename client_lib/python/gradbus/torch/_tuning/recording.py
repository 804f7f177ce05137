"""Writes down what steps compute, for ``gradbus plan --replay``: layers, their times, and the order of gradients.

The variable GRADBUS_RECORD names a file (``gradbus run --record FILE``). It has the format of ``--profile-file``
(server/scheduling/workload.h), and a part "recorded" about the job.
"""

from __future__ import annotations

import json
import os
import pathlib
import statistics
import warnings
from typing import Any

from ..._process_sets import session_of
from .measured import Agreement, Measurement, layer_parameters_of, workload_of
from .step_times import StepTimes


class Recorder:
    """Of the first optimizer of a job. All ranks call stepped() after each step; the lowest one writes."""

    def __init__(self, state: Any, path: str) -> None:
        self._state = state
        self._path = path
        self._measurement = Measurement(state)
        self.is_done = False

    def stepped(self) -> None:
        """After each step."""
        times = self._measurement.stepped()
        if times is not None:
            self._end(times)

    def restart(self) -> None:
        """Forgets what was measured."""
        self._measurement.restart()

    def stop(self) -> None:
        """Nothing is measured any more."""
        self._measurement.stop()
        self.is_done = True

    def _end(self, times: StepTimes) -> None:
        state = self._state
        state.exchange.settle()
        state.attendance.require_all()
        self.stop()
        process_set = state.settings.process_set
        session = session_of(process_set, "DistributedOptimizer")
        agreement = Agreement(process_set, state.attendance, "record")
        row, seconds = times.medians(), statistics.median(times.seconds)
        recorded: dict[str, Any] = {
            "ranks": session.size, "nodes": -(-session.size // session.local_size),
            "schedule": state.settings.schedule.name, "waits": state.exchange.waits,
        }  # fmt: skip
        if session.size > 1:
            row, seconds = agreement.mean(times), agreement.slowest(seconds)
        if recorded["nodes"] > 1:
            recorded["network"] = agreement.exchange_cost("none")
        recorded["step_us"] = seconds * 1e6
        if session.rank == 0:
            layer_parameters = layer_parameters_of(times, len(state.parameters))
            workload, _ = workload_of(state.parameters, layer_parameters, times, row)
            self._write({**workload, "name": "recorded job", "recorded": recorded})

    def _write(self, recording: dict[str, Any]) -> None:
        try:
            pathlib.Path(self._path).write_text(json.dumps(recording, indent=1) + "\n")
        except OSError as error:  # the training goes on
            warnings.warn(f"gradbus: the recording is not written: {error}", stacklevel=4)


def recorder_of(state: Any) -> Recorder | None:
    """One if the environment asks for it."""
    path = os.environ.get("GRADBUS_RECORD", "").strip()
    return Recorder(state, path) if path and not state.settings.number else None

"""What ``gradbus status --json`` says about this job: asked without waiting. Main thread."""

from __future__ import annotations

import json
import subprocess
import tempfile
from typing import Any

from ..__main__ import words_of

_LAST_S = 20.0  # of the question at the end


class StatusQuestion:
    """One at a time. The command runs beside the training and writes into a file."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._asked: subprocess.Popen[bytes] | None = None
        self._file: Any = None
        self.why_not = ""  # the last question had no answer

    @property
    def is_open(self) -> bool:
        """It was asked, and the answer was not taken."""
        return self._asked is not None

    def ask(self) -> None:
        """Starts the command."""
        self._file = tempfile.TemporaryFile()
        command = words_of("status", "--json")
        self._asked = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self._file, stderr=subprocess.STDOUT, start_new_session=True
        )

    def answer(self, wait: bool = False) -> dict[str, Any] | None:
        """The job's part of it, once; None: not yet, or not at all."""
        if self._asked is None or (not wait and self._asked.poll() is None):
            return None
        asked, self._asked = self._asked, None
        try:
            asked.wait(_LAST_S)
        except subprocess.TimeoutExpired:
            asked.kill()
            asked.wait()
        with self._file as file:
            file.seek(0)
            return self._of(file.read().decode(errors="replace"))

    def _of(self, text: str) -> dict[str, Any] | None:
        try:
            jobs = json.loads(text)["jobs"]
        except (ValueError, KeyError, TypeError):
            self.why_not = " ".join(text.split()) or "`gradbus status` said nothing"
            return None
        found = [job for job in jobs if job["job"] == self._job]
        self.why_not = "" if found else f"`gradbus status` does not know the job {self._job}"
        return max(found, key=lambda job: int(job["epoch"])) if found else None


def numbers_of(job: dict[str, Any]) -> dict[str, float]:
    """The curves that the status of a job gives."""
    compressed = float(job["compressed_bytes"])
    numbers = {
        "sent_bytes": float(job["sent_bytes"]),
        "received_bytes": float(job["received_bytes"]),
        "compression_ratio": float(job["uncompressed_bytes"]) / compressed if compressed else 1.0,
    }
    late = {int(rank["rank"]): float(rank["late_ns"]) for rank in job["ranks"]}
    if late:
        latest = max(late, key=lambda rank: late[rank])
        numbers["lateness_s"] = late[latest] / 1e9
        numbers["latest_rank"] = float(latest)
    fidelity = job.get("fidelity") or []
    if fidelity:
        numbers["fidelity_cosine"] = min(float(each["cosine"]) for each in fidelity)
        numbers["fidelity_relative_error"] = max(float(each["relative_error"]) for each in fidelity)
        numbers["residual_ratio"] = max(float(each["residual_ratio"]) for each in fidelity)
    return numbers

"""What agents have sent to each other for this job, for --traffic: `gradbus status --json`, asked by rank 0.

Agents report their counters with their heartbeats, so a reading is up to half a second old: all ranks rest before it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from typing import Any

import torch

from common import optimizers

REST_S = 1.5  # agents send a heartbeat every 0.5 s
DEADLINE_S = 20


class Traffic:
    """Bytes between agents since it was made; every rank makes one and asks it at the same time."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self._before = self._now()

    def report(self, model: torch.nn.Module) -> dict[str, int]:
        """What --traffic adds to a program's JSON line; on rank 0, elsewhere zeros."""
        sizes = [(p.numel() * p.element_size(), optimizers.is_compressed(p)) for p in model.parameters()]
        return {
            "sent_bytes": self._now() - self._before,  # all agents together
            "gradient_bytes": sum(size for size, _ in sizes),
            "compressible_bytes": sum(size for size, compressed in sizes if compressed),
        }

    def _now(self) -> int:
        self._backend.barrier()
        time.sleep(REST_S)
        count = sent_bytes() if self._backend.rank == 0 else 0
        self._backend.barrier()
        return count


def sent_bytes() -> int:
    """What the agents said last."""
    program = shutil.which("gradbus") or sys.exit("--traffic: no program 'gradbus' in PATH")
    command = [program, "status", "--json", "--job", os.environ.get("GRADBUS_JOB", "")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE_S)
    jobs = json.loads(done.stdout)["jobs"] if done.stdout else []
    if not jobs:
        sys.exit(f"--traffic: {' '.join(command)}: {done.stderr.strip()}")
    return int(jobs[0]["sent_bytes"])

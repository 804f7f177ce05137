"""Refuses versions of torch that cannot have the backend; this module imports with all of them. Any thread."""

from __future__ import annotations

import torch
import torch.distributed

from ..._errors import UnavailableError


def check_torch() -> None:
    """UnavailableError where backends cannot be written in Python."""
    if torch.distributed.is_available():
        from torch._C import _distributed_c10d as c10d

        if hasattr(getattr(c10d, "Backend", None), "all_gather_single"):
            return
    raise UnavailableError(
        f"GB-O900 BAD_ARGUMENT: the backend gradbus does not work with torch {torch.__version__}, whose backends "
        "cannot be written in Python | next: install torch 2.15 or newer, or use gradbus.torch without "
        "torch.distributed"
    )

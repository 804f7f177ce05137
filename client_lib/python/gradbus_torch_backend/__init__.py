"""Makes torch.distributed know the backend "gradbus" when torch is imported (entry point ``torch.backends``).

Every ``import torch`` runs this, so it imports nothing of Gradbus before a process group is made. It is a package
next to ``gradbus``, since ``import gradbus.x`` would load ``gradbus`` first.
"""

from __future__ import annotations

import sys
from typing import Any

NAME = "gradbus"


def register() -> None:
    """Does nothing the second time, nor where torch has no torch.distributed."""
    import torch.distributed as dist

    if not dist.is_available() or not hasattr(dist.Backend, "_plugins"):
        return
    if NAME.upper() not in dist.Backend._plugins:
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])


def _create(options: Any, _: Any) -> Any:
    from gradbus.torch.distributed._registration import create

    # torch passes the map of devices to nobody, so it is read from the caller's frame.
    return create(options, sys._getframe(1).f_locals.get("backend_config"))

"""What can be said about a model's parameters at the end of a training."""

from __future__ import annotations

import hashlib
import sys
from typing import Any

import numpy as np
import torch


def whole(parameter: torch.Tensor) -> np.ndarray:
    """The array of a parameter. All ranks call it for one that FSDP2 has sharded."""
    values = parameter.detach()
    return (values.full_tensor() if hasattr(values, "full_tensor") else values).cpu().numpy()


def digest(model: torch.nn.Module) -> str:
    """SHA-256 over the bytes of all parameters in order."""
    sha256 = hashlib.sha256()
    for parameter in model.parameters():
        sha256.update(whole(parameter).tobytes())
    return sha256.hexdigest()


def check_identical(backend: Any, param_hash: str) -> None:
    """Ends every rank loudly when the ranks' parameters differ in one bit."""
    hashes = backend.gather(param_hash)
    if len(set(hashes)) != 1:
        sys.exit(f"ranks ended with different parameters: {hashes}")


def save(backend: Any, path: str | None, model: torch.nn.Module) -> None:
    """Rank 0 writes one npz with every parameter under its name. All ranks call it."""
    if path:
        arrays = {name: whole(parameter) for name, parameter in model.named_parameters()}
        if backend.rank == 0:
            np.savez(path, **arrays)

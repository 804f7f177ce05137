"""init() and cuda_built(), which need PyTorch."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .._basics import Comm, Sets, init_with
from ..common.basics import basics_of


def _zeros(shape: Sequence[int], dtype: str) -> torch.Tensor:
    return torch.zeros(tuple(shape), dtype=getattr(torch, dtype), device="cpu")


def init(comm: Comm = None, process_sets: Sets = None) -> None:
    """Joins the job and waits until every rank has. Arguments and errors: init_with() of ``../_basics.py``."""
    init_with(_zeros, comm, process_sets)


def cuda_built() -> bool:
    """Whether this PyTorch has CUDA. Gradbus takes its tensors then."""
    return torch.version.cuda is not None


basics = basics_of(init, cuda_built)

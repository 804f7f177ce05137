"""Takes the memory of a parameter away for a while. Whoever reads it then gets an error, in C++ as well.

first_use.py sees uses that torch passes to ``__torch_function__``. ``torch.tensor(p)``, DLPack and extensions in C++ do
not come by. They would read an old value; torch raises RuntimeError where they ask for the memory.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from .uncompiled import keep_module_out_of_compiler

_refuse_access = getattr(torch._C, "_set_storage_access_error_msg", None)  # torch >= 2.2
_TEXT = (
    "GB-O905 IN_FLIGHT: the step of a parameter was put off to its next use, and this call reads its memory without "
    "being seen by Gradbus | next: read parameter.detach() in its place, or call optimizer.flush() on all ranks before"
)


def hide(parameter: torch.nn.Parameter) -> torch.Tensor | None:
    """Keeps shape, dtype and device. Returns what show() takes; None where nothing was done. Parameters are unwatched
    in this thread (first_use.untracked)."""
    real = parameter.data
    if _refuse_access is None or real.layout is not torch.strided or real.is_meta or real.is_conj() or real.is_neg():
        return None
    parameter.data = _blank(real.size(), real.stride(), real.dtype, real.device)
    return real


def show(parameter: torch.nn.Parameter, real: torch.Tensor | None) -> None:
    """Ends hide()."""
    if real is not None:
        parameter.data = real


@functools.lru_cache(maxsize=4096)
def _blank(size: torch.Size, stride: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Any:
    blank = torch.empty_strided(size, stride, dtype=dtype, device=device)
    assert _refuse_access is not None
    _refuse_access(blank, _TEXT)  # frees the memory
    return blank


keep_module_out_of_compiler(__name__)

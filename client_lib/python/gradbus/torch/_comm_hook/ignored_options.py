"""Says once per job which options of the job have no effect on the exchange of torch's own wrappers.

`gradbus run --compression` and `--mode` are for gradients with names. DistributedDataParallel and FSDP hand over sums
without names, and expect them at once. Training is right then, so nothing else would tell the user.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from ... import _core
from ..._modes.kinds import ModeKind
from .._buckets.parameter_info import NamedParameter
from .._ddp import ddp_modules, fsdp_modules

_DDP = "DistributedDataParallel"
_HOOK = "call model.register_comm_hook(None, gradbus.torch.hook())"
_OPTIMIZER = "train the model without {} and with gradbus.torch.DistributedOptimizer"
_told: set[str] = set()  # by this process


def is_in_backward() -> bool:
    """Whether this thread runs a part of backward(). False where torch does not say."""
    task = getattr(torch._C, "_current_graph_task_id", None)
    return task is not None and task() != -1


def warn_of_plain_exchange(session: _core.Session, members: Any) -> None:
    """Of the models on this process group that exchange gradients without the hook of Gradbus."""
    its = [m for m in ddp_modules() if getattr(m.process_group, "members", members) is members]
    plain = [module.module for module in its if not getattr(module, "_comm_hooks", ())]
    sharded = [] if its else fsdp_modules()
    if plain:
        _warn(session, _DDP, _named(plain), _HOOK)
    elif sharded:
        _warn(session, "FSDP", _named(sharded), _OPTIMIZER.format("FSDP"))


def warn_of_mode(session: _core.Session, named: Sequence[NamedParameter]) -> None:
    """Of a model with the hook, which applies the compression."""
    if session.rank == 0:
        _say(_of_mode(session, _DDP, named))


def _warn(session: _core.Session, wrapper: str, named: Sequence[NamedParameter], step: str) -> None:
    texts = {session.compression_for(name, p.numel(), max(1, p.dim())) for name, p in named} - {"none"}
    said = [f"compression {' and '.join(sorted(texts))} has no effect on {wrapper} | next: {step}"] if texts else []
    _say(said + _of_mode(session, wrapper, named))


def _of_mode(session: _core.Session, wrapper: str, named: Sequence[NamedParameter]) -> list[str]:
    modes = [session.mode_for(name, p.numel(), max(1, p.dim())) for name, p in named]
    texts = sorted({mode.text for mode in modes if mode.kind != ModeKind.SYNC})
    step = _OPTIMIZER.format(wrapper)
    return [f"mode {' and '.join(texts)} has no effect on {wrapper} | next: {step}"] if texts else []


def _say(said: Sequence[str]) -> None:
    for text in said:
        if text not in _told:
            _told.add(text)
            warnings.warn(f"gradbus: {text}", stacklevel=4)


def _named(modules: Iterable[torch.nn.Module]) -> list[NamedParameter]:
    return [pair for module in modules for pair in module.named_parameters() if pair[1].requires_grad]

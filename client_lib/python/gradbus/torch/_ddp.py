"""A model that DistributedDataParallel averages, too, is refused: its gradients would be averaged twice.

DDP leaves no mark on parameters, and its hooks cannot be seen from Python. But DDP modules are Python
objects, so the garbage collector knows them. Only processes with a process group can have one; others
are not searched.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable

import torch

from .._errors import bad_argument


def refuse_ddp(parameters: Iterable[tuple[str, torch.Tensor]]) -> None:
    """Raises InvalidError when a DDP or FSDP module of this process holds one of them."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return
    names = {id(parameter): name for name, parameter in parameters}
    for module in _averaging_modules():
        for parameter in module.parameters():
            if id(parameter) in names:
                raise bad_argument(
                    f"DistributedOptimizer: parameter '{names[id(parameter)]}' is in a "
                    f"{type(module).__name__}, which averages gradients, too",
                    f"give the optimizer the model without {type(module).__name__}",
                )


def ddp_modules() -> list[torch.nn.Module]:
    """Of this process."""
    return _modules_of((torch.nn.parallel.DistributedDataParallel,))


def fsdp_modules() -> list[torch.nn.Module]:
    """Of this process, by fully_shard() or FullyShardedDataParallel."""
    module = sys.modules.get("torch.distributed.fsdp")
    kinds = (getattr(module, name, None) for name in ("FSDPModule", "FullyShardedDataParallel"))
    return _modules_of(tuple(kind for kind in kinds if kind is not None))


def _averaging_modules() -> list[torch.nn.Module]:
    fsdp = getattr(sys.modules.get("torch.distributed.fsdp"), "FullyShardedDataParallel", None)
    kinds = (torch.nn.parallel.DistributedDataParallel, fsdp)
    return _modules_of(tuple(kind for kind in kinds if kind is not None))


def _modules_of(kinds: tuple[type, ...]) -> list[torch.nn.Module]:
    # By type alone: isinstance() asks proxies of other libraries, which may load modules for it.
    return [found for found in gc.get_objects() if issubclass(type(found), kinds)]

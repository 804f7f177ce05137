"""A model that DistributedDataParallel averages, too, is refused: its gradients would be averaged twice.

DDP leaves no mark on parameters, and its hooks cannot be seen from Python. But DDP modules are Python
objects, so the garbage collector knows them. Only processes with a process group can have one; others
are not searched.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable

import torch

from .._errors import bad_argument


def refuse_ddp(parameters: Iterable[tuple[str, torch.Tensor]]) -> None:
    """Raises InvalidError when a DDP module of this process holds one of them."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return
    names = {id(parameter): name for name, parameter in parameters}
    for module in ddp_modules():
        for parameter in module.parameters():
            if id(parameter) in names:
                raise bad_argument(
                    f"DistributedOptimizer: parameter '{names[id(parameter)]}' is in a "
                    f"{type(module).__name__}, which averages gradients, too",
                    "give the optimizer the model without DistributedDataParallel",
                )


def ddp_modules() -> list[torch.nn.Module]:
    """Of this process."""
    kind = torch.nn.parallel.DistributedDataParallel
    # By type alone: isinstance() asks proxies of other libraries, which may load modules for it.
    return [found for found in gc.get_objects() if issubclass(type(found), kind)]

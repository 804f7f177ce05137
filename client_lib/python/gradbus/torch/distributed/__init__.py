"""The backend "gradbus" of torch.distributed.

    import torch.distributed as dist
    dist.init_process_group("gradbus")      # or "cpu:gradbus,cuda:nccl"

``import torch`` finds the backend by itself, unless TORCH_DEVICE_BACKEND_AUTOLOAD=0; then import this module first.
Every process group is a job of its own on the daemons, so groups do not disturb each other.
"""

from gradbus_torch_backend import register

from ._versions import check_torch

__all__ = ["register"]

check_torch()
register()

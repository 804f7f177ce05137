"""Makes the process groups of the backend. The package ``gradbus_torch_backend`` registers it. Main thread."""

from __future__ import annotations

from typing import Any

import torch
from torch._C import _distributed_c10d as c10d

from ..._errors import UnavailableError
from ._rendezvous import NAME, open_members


def create(options: Any, config: Any) -> Any:
    """A process group for torch's ``init_process_group`` and ``new_group``; every member of the group calls it.

    ``config``: torch's BackendConfig, None where it is not known.
    """
    if not hasattr(c10d.Backend, "all_gather_single"):
        raise UnavailableError(
            f"GB-O900 BAD_ARGUMENT: the backend gradbus does not work with torch {torch.__version__}, whose backends "
            "cannot be written in Python | next: install torch 2.15 or newer, or use gradbus.torch without "
            "torch.distributed"
        )
    from ._group import Backend, ProcessGroup, check_process

    check_process()
    members = open_members(
        options.store, options.group_rank, options.group_size, options.timeout, options.global_ranks_in_group
    )
    backend = Backend(members)
    return backend if _shares_group(config) else ProcessGroup(members, backend, options.store)


def _shares_group(config: Any) -> bool:
    """Whether the group has another backend for other devices, as in "cpu:gradbus,cuda:nccl".

    torch takes a ProcessGroup as the whole group, and a Backend as the part for one device. Works of a ProcessGroup
    reach the caller as they are. Those of a Backend are wrapped, and the wrapper hides ``is_completed()``.
    """
    return config is None or set(config.get_device_backend_map().values()) != {NAME}

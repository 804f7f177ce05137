"""Makes the process groups of the backend. The package ``gradbus_torch_backend`` registers it. Main thread."""

from __future__ import annotations

from typing import Any

from ._versions import check_torch


def create(options: Any, config: Any) -> Any:
    """A process group for torch's ``init_process_group`` and ``new_group``; every member of the group calls it.

    ``config``: torch's BackendConfig, None where it is not known.
    """
    check_torch()
    from ._group import Backend, ProcessGroup, check_process
    from ._rendezvous import open_members

    check_process()
    members = open_members(
        options.store, options.group_rank, options.group_size, options.timeout, options.global_ranks_in_group
    )
    backend = Backend(members)
    return backend if _shares_group(config) else ProcessGroup(members, backend, options.store)


def _shares_group(config: Any) -> bool:
    """Whether the group has another backend for other devices, as in "cpu:gradbus,cuda:nccl".

    torch takes a ProcessGroup as the whole group, and a Backend as the part for one device. Works of a ProcessGroup
    reach the caller as they are. torch wraps those of a Backend in a PyWorkHolder of its C++ code, which forwards only
    ``wait()`` and ``get_future()``: ``is_completed()`` of the wrapper is false for ever.
    """
    from ._rendezvous import NAME

    return config is None or set(config.get_device_backend_map().values()) != {NAME}

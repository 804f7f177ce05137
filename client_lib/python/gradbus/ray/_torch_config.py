"""The configuration and its backend. Runs in the controller of Ray Train, and sends functions to the workers."""

from __future__ import annotations

import dataclasses
import os
import secrets
from collections.abc import Mapping
from typing import Any

import ray
from ray.train.torch import TorchConfig as RayTorchConfig

from .._errors import bad_argument

_PREFIX = "GRADBUS_"
_DECIDED_HERE = ("GRADBUS_RANK", "GRADBUS_SIZE", "GRADBUS_JOB")


def _set_variables(variables: Mapping[str, str]) -> None:
    os.environ.update(variables)


def _leave_job() -> None:
    from .. import is_initialized, shutdown

    if is_initialized():
        shutdown()


def _checked(environment: Mapping[str, str]) -> dict[str, str]:
    wrong = [name for name in environment if not name.startswith(_PREFIX) or name in _DECIDED_HERE]
    if wrong:
        raise bad_argument(
            f"TorchConfig: environment has {', '.join(wrong)}",
            "pass variables of Gradbus, without rank, size and job; Ray's runtime_env takes all others",
        )
    return {name: str(value) for name, value in environment.items()}


@dataclasses.dataclass
class TorchConfig(RayTorchConfig):  # type: ignore[misc,unused-ignore]
    """Like that of Ray, with the backend "gradbus".

    Args:
        backend: of the process group; "gloo" leaves it with Gloo, and ``gradbus.init()`` still works.
        environment: variables of all workers, such as ``{"GRADBUS_COMPRESSION": "topk:ratio=0.01"}``.
        job: a name; each start of the workers adds a number to it.

    Raises InvalidError.
    """

    backend: str | None = "gradbus"
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    job: str = "ray"

    def __post_init__(self) -> None:
        self.environment = _checked(self.environment)

    @property
    def backend_cls(self) -> Any:
        """What Ray Train runs when workers start and end."""
        return _Backend


class _Backend(RayTorchConfig().backend_cls):  # type: ignore[misc,unused-ignore]
    """Gives each worker its place in the job, and leaves the rest to Ray."""

    def on_start(self, worker_group: Any, backend_config: TorchConfig) -> None:
        """Workers that start again after a failure make a job of another name."""
        job = f"{backend_config.job}-{secrets.token_hex(6)}"
        size = len(worker_group)
        common = {**backend_config.environment, "GRADBUS_JOB": job, "GRADBUS_SIZE": str(size)}
        ray.get([
            worker_group.execute_single_async(rank, _set_variables, {**common, "GRADBUS_RANK": str(rank)})
            for rank in range(size)
        ])  # fmt: skip
        super().on_start(worker_group, backend_config)

    def on_shutdown(self, worker_group: Any, backend_config: TorchConfig) -> None:
        """Workers that Ray keeps must not stay in the job."""
        ray.get(worker_group.execute_async(_leave_job))
        super().on_shutdown(worker_group, backend_config)

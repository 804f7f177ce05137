"""The model that a hook was registered with, and where its gradients are exchanged.

torch gives a hook buckets of parameters without names. But DDP modules are Python objects, so the garbage collector
knows them.
"""

from __future__ import annotations

import dataclasses
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ... import _core
from ..._errors import bad_argument
from ..._process_sets import ProcessSet, global_process_set, session_of
from .._buckets.detach import Detachable, detach_before_close
from .._buckets.parameter_info import NamedParameter
from .._ddp import ddp_modules
from .._numbers import next_number


@dataclasses.dataclass(frozen=True)
class Model:
    """Its parameters by name, its session, and its number among the hooks there."""

    named: list[NamedParameter]
    session: _core.Session
    number: int

    def name_of(self, parameter: torch.Tensor) -> str:
        """As in the model without DistributedDataParallel."""
        for name, known in self.named:
            if known is parameter:
                return name
        raise bad_argument(
            f"hook: it was registered with a second model, which has a parameter of shape {tuple(parameter.shape)}",
            "make a hook for each model",
        )


def model_of(
    parameters: Sequence[torch.Tensor], hook: Any, process_set: ProcessSet | None
) -> Model:
    """The model with these parameters. ``hook`` detaches before the session ends.

    Raises ClosedError (no session), InvalidError (not the ranks of DDP's process group).
    """
    module = _module_of(parameters, hook)
    named = [(name, p) for name, p in module.module.named_parameters() if p.requires_grad]
    members = _members_of(module.process_group) if process_set is None else None
    if members is not None:
        reference = weakref.ref(hook)
        members.before_close.append(lambda: _detach(reference))
        members.hooks += 1
        return Model(named, members.session, members.hooks - 1)
    chosen = global_process_set if process_set is None else process_set
    session = session_of(chosen, "hook")
    _check_size(module.process_group, session)
    detach_before_close(hook, chosen)
    return Model(named, session, next_number(chosen))


def _module_of(parameters: Sequence[torch.Tensor], hook: Any) -> Any:
    wanted = {id(parameter) for parameter in parameters}
    found = [m for m in ddp_modules() if wanted <= {id(p) for p in m.parameters()}]
    if not found:
        raise bad_argument(
            "hook: no DistributedDataParallel has these parameters",
            "pass it to register_comm_hook() of a DistributedDataParallel",
        )
    # Of two around one model, newer versions of torch know whose hook it is.
    its = [m for m in found if any(hook is known for known, _ in getattr(m, "_comm_hooks", ()))]
    return (its or found)[-1]


def _members_of(group: Any) -> Any:
    """Of a process group on the backend gradbus; None for another one."""
    rendezvous = sys.modules.get("gradbus.torch.distributed._rendezvous")
    if rendezvous is None:
        return None
    members = getattr(group, "members", None)
    return members if isinstance(members, rendezvous.Members) else None


def _detach(reference: Callable[[], Detachable | None]) -> None:
    hook = reference()
    if hook is not None:
        hook.detach(process_goes_on=True)


def _check_size(group: Any, session: _core.Session) -> None:
    if group.size() != session.size:
        raise bad_argument(
            f"hook: DistributedDataParallel averages over {group.size()} ranks, and Gradbus over {session.size}",
            "pass hook(..., process_set=) the ranks of DDP's process group",
        )

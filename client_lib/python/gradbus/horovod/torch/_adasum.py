"""DistributedOptimizer(op=hvd.Adasum): each rank steps alone, and Adasum combines the changes of the parameters.

Maleki et al. 2020: the combined change is the sum where the ranks' changes are orthogonal, and the mean where they are
equal. So the learning rate need not grow with the number of ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch

from ..._errors import bad_argument
from ..._ops import Adasum
from ..._process_sets import ProcessSet
from ...torch._exchangers import put_in_front
from ._reductions import grouped_allreduce


def make_adasum(
    optimizer: torch.optim.Optimizer, compression: Any, passes: int, process_set: ProcessSet
) -> torch.optim.Optimizer:
    """The same object with a step() that ends with the exchange. Gradients stay those of this rank."""
    if isinstance(passes, bool) or not isinstance(passes, int) or passes < 1:
        raise bad_argument(f"DistributedOptimizer: backward_passes_per_step={passes!r}", "pass a number, at least 1")
    base = type(optimizer)
    changed: Any = optimizer
    changed._counted = put_in_front(changed, type(base.__name__, (_AdasumSteps, base), {}))
    changed._adasum = (compression, process_set)
    return optimizer


class _AdasumSteps:
    _adasum: tuple[Any, ProcessSet]
    _counted: Callable[..., Any] | None  # the plain step in a scheduler's wrapper
    param_groups: list[dict[str, Any]]

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """A step on this rank's gradients, and the exchange of what it changed.

        The gradients of several backward() calls add up until then.
        """
        compression, process_set = self._adasum
        # A parameter that this rank has not used counts as a change of zero, so all ranks exchange the same ones.
        parameters = [p for group in self.param_groups for p in group["params"] if p.requires_grad]
        before = [parameter.detach().clone() for parameter in parameters]
        loss = (self._counted or super().step)(closure)  # type: ignore[misc]
        with torch.no_grad():
            changes = [parameter - start for parameter, start in zip(parameters, before)]
            combined = grouped_allreduce(
                changes, name="adasum", op=Adasum, compression=compression, process_set=process_set
            )
            for parameter, start, change in zip(parameters, before, combined):
                parameter.copy_(start + change)
        return loss

    def synchronize(self) -> None:
        """Nothing is in flight before step()."""

    def skip_synchronize(self) -> NoReturn:
        """Refused, as in Horovod."""
        raise bad_argument(
            "skip_synchronize: an optimizer with op=hvd.Adasum exchanges in step()", "call step() without it"
        )

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Gradients add up until step(), so this changes nothing."""

"""The place of one parameter's gradient in a bucket: dense, or the rows of a sparse one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


class Slot:
    """A parameter's place in a bucket; its ``.grad`` is a view of it."""

    def __init__(
        self, name: str, parameter: torch.nn.Parameter, views: Sequence[torch.Tensor]
    ) -> None:
        self.name = name
        self.parameter = parameter
        self._views = views  # by lane
        self.view = views[0]
        self.passes_left = 0
        # False until the first gradient arrived: that one is copied; later ones are born in place.
        self.adopted = False

    def use_lane(self, lane: int) -> None:
        """From here on the view is that of this lane."""
        self.view = self._views[lane]

    def replace(self, views: Sequence[torch.Tensor]) -> None:
        """The same gradient lies elsewhere from here on."""
        born_here = self.parameter.grad is self.view
        self._views = views
        self.use_lane(0)
        if born_here:
            self.parameter.grad = self.view

    def makes_dense(self) -> bool:
        """Whether adopt() will make a sparse gradient dense."""
        grad = self.parameter.grad
        return grad is not None and grad.layout != torch.strided

    def adopt(self) -> None:
        """Makes ``.grad`` the view, with the values that ``.grad`` has now (None: zeros)."""
        grad = self.parameter.grad
        if grad is self.view:
            return
        if grad is None:
            self.view.zero_()
        elif grad.layout != torch.strided:
            self.view.zero_().add_(grad.detach())
        else:
            self.view.copy_(grad.detach())
        self.point()

    def fill(self) -> None:
        """Before the bucket is handed on: the view is this rank's gradient."""

    def point(self) -> None:
        """Makes ``.grad`` the view; a parameter frozen meanwhile is left alone."""
        if self.parameter.requires_grad:
            self.parameter.grad = self.view
            self.adopted = True

    def restart(self) -> None:
        """A gradient of zeros, as the view is, where the next one is to be added."""
        self.parameter.grad = self.view if self.adopted else None

    def forget(self) -> None:
        """Others have written to the view."""


class SparseSlot(Slot):
    """Of a parameter whose gradients come sparse, each a few rows of its matrix.

    ``.grad`` is the rank's own sparse gradient until the exchange, and after it a coalesced one of the
    rows that are not zeros in the result. The view is written row by row and never zeroed as a whole
    after its first round: the rows that are not zeros there are known.
    """

    _rows: torch.Tensor | None = None  # all others of the view are zeros; None: not known

    def use_lane(self, lane: int) -> None:
        """The rows of this lane are not known."""
        super().use_lane(lane)
        self._rows = None

    def makes_dense(self) -> bool:
        """No."""
        return False

    def adopt(self) -> None:
        """The gradient stays where it is until fill()."""
        self.adopted = True

    def fill(self) -> None:
        """Duplicates are summed; a dense gradient is as good."""
        self._clear()
        self._rows = None  # until there is a result
        grad = self.parameter.grad
        if grad is None:
            return
        if grad.layout == torch.sparse_coo and grad.sparse_dim() == 1:
            own = grad.detach().coalesce()
            self.view.index_copy_(0, own.indices()[0], own.values())
        else:
            self.view.add_(grad.detach())

    def point(self) -> None:
        """Makes ``.grad`` the rows of the view that are not zeros."""
        self._rows = rows = _rows_of(self.view)
        if self.parameter.requires_grad:
            values = self.view.index_select(0, rows)
            grad = torch.sparse_coo_tensor(rows.unsqueeze(0), values, self.view.shape, **_UNCHECKED)
            # The SparseAdam of torch 1 fails where there are no rows.
            self.parameter.grad = grad.coalesce() if len(rows) or _UNCHECKED else None

    def restart(self) -> None:
        """None: the next gradient is sparse."""
        self.parameter.grad = None

    def _clear(self) -> None:
        if self._rows is None:
            self.view.zero_()
        else:
            self.view.index_fill_(0, self._rows, 0)

    def forget(self) -> None:
        """Any row may be another."""
        self._rows = None


# Torch 2 wants to be told: the rows are those of a matrix. Torch 1 knows no such option.
_UNCHECKED: dict[str, Any] = (
    {"check_invariants": False} if hasattr(torch.sparse, "check_sparse_tensor_invariants") else {}
)
_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def _rows_of(matrix: torch.Tensor) -> torch.Tensor:
    # Extremes of whole numbers read the table at memory's rate, ten times as fast as norms or any().
    # A NaN is none of 0; a row of zeros and -0 counts, too, and adds zeros.
    bits = matrix.view(_BITS[matrix.element_size()]).reshape(matrix.shape[0], -1)
    return bits.amax(1).ne(0).logical_or_(bits.amin(1).ne(0)).nonzero().flatten()

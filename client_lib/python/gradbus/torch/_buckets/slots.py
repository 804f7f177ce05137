"""The place of one parameter's gradient in a bucket: dense, or the rows of a sparse one.

Two tensors describe the same memory. `view` is private: only this package reads and writes it. The other
one is what users find in ``.grad``. It has its own storage and version counter and is no view for autograd,
so ``.grad.detach_()`` works. Users may also give it other storage (``.grad.data = ...``, ``module.double()``,
``share_memory()``): then the values are copied back, and ``.grad`` is made anew.

Elements lie in a bucket in the order of a contiguous tensor, on every rank. A parameter of another order
(channels_last) gets a private ``.grad`` of its own order, as torch does it, which is copied to the bucket and back:
fused optimizers walk through both in memory order, and ranks may have different orders.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..._errors import InvalidError, MismatchError, bad_argument


class Slot:
    """A parameter's place in a bucket; its ``.grad`` lies there."""

    def __init__(
        self, name: str, parameter: torch.nn.Parameter, views: Sequence[torch.Tensor]
    ) -> None:
        self.name = name
        self.parameter = parameter
        self._grads = 0  # in this backward pass
        # As many as any pass has brought, two where a reentrant checkpoint shares the layer; 0: none
        # has ended yet, and nobody knows how many will come.
        self.grads_per_pass = 0
        self._passes = 0  # in this round
        self._is_ready = False  # the gradient of this round is complete
        self.noted: tuple[torch.Tensor | None, int, int] = (None, 0, 0)  # .grad, its version and address
        # False until the first gradient arrived: that one is copied; later ones are born in place.
        self.adopted = False
        # zero_grad(set_to_none=True) or adopt() put zeros there instead of None, and no gradient has arrived since.
        self.has_zeros_for_none = False
        self._private: torch.Tensor | None = None  # .grad of a parameter in another order
        self.hook: Any = None  # is called with each gradient
        self._set_views(views)

    def _set_views(self, views: Sequence[torch.Tensor]) -> None:
        self._views = views  # by delay slot
        self._gradients: list[torch.Tensor | None] = [None] * len(views)  # for .grad, by delay slot
        self._addresses = [view.data_ptr() for view in views]
        self._shape, self._stride, self._dtype = views[0].shape, views[0].stride(), views[0].dtype
        self.use_delay_slot(0)

    def begin_round(self) -> None:
        """No gradient has arrived."""
        self._grads = self._passes = 0
        self._is_ready = False

    def count(self, passes: int) -> bool:
        """One more gradient has arrived; True when it is the last one of this round's ``passes``."""
        self.has_zeros_for_none = False
        self._grads += 1
        if self._grads != self.grads_per_pass or self._passes + 1 < passes or self._is_ready:
            return False
        self._is_ready = True
        return True

    def end_pass(self, passes: int) -> bool:
        """No more gradients come in this backward pass; True when the round's last one has come."""
        if not self._grads:
            return False
        self.grads_per_pass = max(self._grads, self.grads_per_pass)
        self._grads = 0
        self._passes += 1
        if self._passes < passes or self._is_ready:
            return False
        self._is_ready = True
        return True

    def is_unset(self) -> bool:
        """No gradient has arrived in this round, and ``.grad`` would be None in one process."""
        return not (self._grads or self._passes or self._is_ready) and self._would_be_none()

    def _would_be_none(self) -> bool:
        grad = self.parameter.grad
        if grad is None:
            return True
        if not (self.has_zeros_for_none and (grad is self._private or self.is_in_place())):
            return False
        # Without a gradient of backward(), a script may write one. Torch does not count what it writes to .grad.data,
        # and counts zeros that model.zero_grad(set_to_none=False) writes. So the values tell.
        self.has_zeros_for_none = not grad.any()
        return self.has_zeros_for_none

    def end_zeros_for_none(self) -> None:
        """Other ranks may have had a gradient: what is in ``.grad`` stands for no None."""
        self.has_zeros_for_none = False

    def refuse_when_frozen_here(self) -> None:
        """Another rank has a gradient. Raises MismatchError if no step will move this rank's parameter."""
        if not self.parameter.requires_grad and self.parameter.grad is None:
            raise MismatchError(
                f"GB-O906 REPLICAS_DIFFER: parameter '{self.name}' is frozen on this rank, and another rank trains it: "
                "the replicas would drift apart | next: call requires_grad_() on all ranks alike"
            )

    def leave_out(self) -> None:
        """Nobody had a gradient."""
        self.parameter.grad = None

    def use_delay_slot(self, delay_slot: int) -> None:
        """From here on the view is that of this delay slot."""
        self._delay_slot = delay_slot
        self.view = self._views[delay_slot]

    def replace(self, views: Sequence[torch.Tensor]) -> None:
        """The same gradient lies elsewhere from here on."""
        born_here = self.is_in_place()
        self._set_views(views)
        if born_here:
            self._put()

    def makes_dense(self) -> bool:
        """Whether adopt() will make a sparse gradient dense."""
        grad = self.parameter.grad
        return grad is not None and grad.layout != torch.strided

    def is_own(self) -> bool:
        """Whether ``.grad`` was made here. Its values may lie elsewhere: is_in_place()."""
        grad = self.parameter.grad
        return grad is self._gradients[self._delay_slot] or grad is self._private

    def is_in_place(self) -> bool:
        """Whether ``.grad`` is the memory of this slot: the same object, with the storage it was made with."""
        grad = self.parameter.grad
        return grad is not None and grad is self._gradients[self._delay_slot] and self._is_intact(grad)

    def _is_intact(self, gradient: torch.Tensor) -> bool:
        return (
            gradient.data_ptr() == self._addresses[self._delay_slot]
            and gradient.stride() == self._stride
            and gradient.shape == self._shape
            and gradient.dtype is self._dtype
            and not gradient.is_conj()
        )

    def adopt(self) -> None:
        """Makes ``.grad`` the view, with the values that ``.grad`` has now (None: zeros)."""
        self._drop_zeros_when_frozen()
        if self.is_in_place():
            return
        grad = self.parameter.grad
        self.refuse_other_kind()
        self.noted = None, 0, 0  # torch does not count what is written to the view
        if grad is None:
            self.view.zero_()
        elif grad.requires_grad:
            raise _graph_error(self.name)
        elif grad.layout != torch.strided:
            self.view.zero_().add_(grad.detach())
        else:
            own = grad.detach()
            # .grad.data = .grad.data.t(): the same memory in another order.
            self.view.copy_(own.clone() if self._made(grad) else own)
        if grad is None or grad is not self._private:
            self.point()
            self.has_zeros_for_none = grad is None and self.parameter.grad is not None

    def _made(self, grad: torch.Tensor) -> bool:
        return any(grad is gradient for gradient in self._gradients)

    def refuse_other_kind(self) -> None:
        """Raises InvalidError when the parameter is not what the bucket was made for."""
        parameter, view = self.parameter, self.view
        same = parameter.dtype is self._dtype and parameter.device == view.device
        if not same or parameter.shape != self._shape:
            raise _other_kind_error(self.name, parameter, view)

    def fill(self) -> None:
        """Before the bucket is handed on: the view is this rank's gradient."""

    def note(self) -> bool:
        """From here on nobody should set or write to ``.grad``. Torch counts the writes.

        True when ``.grad`` is the memory of this slot.
        """
        grad = self.parameter.grad
        if grad is None:
            self.noted = None, 0, 0
            return False
        address = grad.data_ptr() if grad.layout is torch.strided else 0
        self.noted = grad, grad._version, address
        if grad is not self._gradients[self._delay_slot] or address != self._addresses[self._delay_slot]:
            return False
        self.adopted = True
        return True

    def is_as_noted(self, writes: int = 0) -> bool:
        """Since note() nobody has, but for so many writes."""
        noted, version, address = self.noted
        grad = self.parameter.grad
        if grad is None or grad is not noted:
            return grad is noted
        return grad._version == version + writes and (not address or grad.data_ptr() == address)

    def point(self) -> None:
        """Makes ``.grad`` the view; a frozen parameter without a gradient keeps none."""
        if self.parameter.requires_grad or self.parameter.grad is not None:
            self._put()
            self.adopted = True

    def _drop_zeros_when_frozen(self) -> None:
        # zero_grad(), then requires_grad_(False): in one process .grad is None.
        if not self.parameter.requires_grad and self._would_be_none():
            self.parameter.grad = None

    def _put(self) -> torch.Tensor:
        if self.parameter.is_contiguous():
            self._private = gradient = None
        else:
            gradient = self._private_gradient()
        if gradient is None:
            gradient = self._gradients[self._delay_slot]
            if gradient is None or not self._is_intact(gradient):
                gradient = self._gradients[self._delay_slot] = _same_memory(self.view)
        if self.parameter.grad is not gradient:
            self.refuse_other_kind()
            self.parameter.grad = gradient
            self.has_zeros_for_none = False
        return gradient

    def _private_gradient(self) -> torch.Tensor | None:
        """A copy of the view in the order of a parameter that is not contiguous; None where that is the view's."""
        self.refuse_other_kind()
        like = torch.empty_like(self.parameter, requires_grad=False)
        if like.is_contiguous():  # the parameter overlaps itself
            return None
        before = self._private
        if before is None or before.stride() != like.stride() or before.dtype is not like.dtype:
            self._private = like
        assert self._private is not None
        return self._private.copy_(self.view)

    def restart(self, set_to_none: bool) -> None:
        """A gradient of zeros, as the view is, where the next one is to be added.

        A frozen parameter gets no next one, and a step on zeros would move it (momentum, weight decay). So its
        ``.grad`` becomes what torch's own zero_grad() makes of it.
        """
        stays = not set_to_none and not self._would_be_none()
        if stays or (self.adopted and self.parameter.requires_grad):
            self._put()
            self.adopted = True
            self.has_zeros_for_none = not stays
        else:
            self.parameter.grad = None

    def show(self) -> None:
        """Ends a step in which ``.grad`` was hidden."""
        if self.adopted and self.parameter.requires_grad:
            self._put()

    def let_go(self, keep_values: bool) -> None:
        """``.grad`` is no longer in shared memory."""
        if self._would_be_none():
            self.parameter.grad = None  # as it would be in one process
        grad = self.parameter.grad
        if grad is not None and self._made(grad):
            self.parameter.grad = grad.detach().clone() if keep_values else None
        self._gradients = [None] * len(self._views)

    def forget(self) -> None:
        """Others have written to the view."""


class SparseSlot(Slot):
    """Of a parameter whose gradients come sparse, each a few rows of its matrix.

    ``.grad`` is the rank's own sparse gradient until the exchange, and after it a coalesced one of the
    rows that are not zeros in the result. The view is written row by row and never zeroed as a whole
    after its first round: the rows that are not zeros there are known.
    """

    _rows: torch.Tensor | None = None  # all others of the view are zeros; None: not known

    def use_delay_slot(self, delay_slot: int) -> None:
        """The rows of this delay slot are not known."""
        super().use_delay_slot(delay_slot)
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
        self.refuse_other_kind()
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
        if self.parameter.requires_grad or self.parameter.grad is not None:
            values = self.view.index_select(0, rows)
            grad = torch.sparse_coo_tensor(rows[None], values, self.view.shape, device=values.device, **_UNCHECKED)
            # The SparseAdam of torch 1 fails where there are no rows.
            self.parameter.grad = grad.coalesce() if len(rows) or _UNCHECKED else None

    def restart(self, set_to_none: bool) -> None:
        """None: the next gradient is sparse."""
        grad = self.parameter.grad
        if set_to_none or self.parameter.requires_grad or grad is None:
            self.parameter.grad = None
        else:
            self.parameter.grad = torch.zeros_like(grad)

    def show(self) -> None:
        """Nothing was hidden."""

    def _clear(self) -> None:
        if self._rows is None:
            self.view.zero_()
        else:
            self.view.index_fill_(0, self._rows, 0)

    def forget(self) -> None:
        """Any row may be another."""
        self._rows = None


def references_of(slot: Slot) -> int:
    """How many of its ``.grad`` it has."""
    grad = slot.parameter.grad
    return sum(grad is one for one in (*slot._gradients, slot._private, slot.noted[0]))


# Torch 2 wants to be told: the rows are those of a matrix. Torch 1 knows no such option.
_UNCHECKED: dict[str, Any] = (
    {"check_invariants": False} if hasattr(torch.sparse, "check_sparse_tensor_invariants") else {}
)
_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def _rows_of(matrix: torch.Tensor) -> torch.Tensor:
    # Extremes of whole numbers read the table at memory's rate, ten times as fast as norms or any().
    # A NaN is none of 0; a row of zeros and -0 counts, too, and adds zeros.
    matrix = torch.view_as_real(matrix) if matrix.is_complex() else matrix
    bits = matrix.view(_BITS[matrix.element_size()]).reshape(matrix.shape[0], -1)
    return bits.amax(1).ne(0).logical_or_(bits.amin(1).ne(0)).nonzero().flatten()


def _same_memory(view: torch.Tensor) -> torch.Tensor:
    """A tensor of the same memory with another storage, another version counter, and no base."""
    flat: torch.Tensor = torch.from_dlpack(view.view(-1))  # type: ignore[attr-defined]
    return flat.view(view.shape).data


def _other_kind_error(name: str, parameter: torch.Tensor, view: torch.Tensor) -> InvalidError:
    return bad_argument(
        f"parameter '{name}' is {_kind(parameter)} now, and was {_kind(view)} when the optimizer was made distributed",
        "convert or move the model first, then make a new optimizer and call DistributedOptimizer()",
    )


def _kind(tensor: torch.Tensor) -> str:
    dtype = str(tensor.dtype).replace("torch.", "")
    return f"{dtype} of shape {tuple(tensor.shape)} on {tensor.device}"


def _graph_error(name: str) -> InvalidError:
    return bad_argument(
        f"the gradient of parameter '{name}' has a graph, which an exchanged gradient cannot keep",
        "call torch.autograd.grad(loss, parameters, create_graph=True) instead of backward(create_graph=True)",
    )

"""What ``.grad`` of a sharded optimizer's parameters is after backward(): a tensor of which each rank holds its share.

It takes no memory besides the share. Norms are those of the whole gradient, and factors and limits apply to all of
it. So torch.nn.utils.clip_grad_norm_(), clip_grad_value_() and GradScaler work unchanged. All ranks call the same, as
with any tensor that is spread over ranks. Every other operation raises InvalidError. Main thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Optional

import torch

from ..._errors import BusyError, InvalidError, bad_argument
from ..._ops import Max, ReduceOp, Sum
from ..._reductions import allreduce_
from .pieces import Cut, Piece

_aten = torch.ops.aten
_Handler = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
Kept = dict[int, Optional[torch.Tensor]]


class StepGradients:
    """The gradients of one step, after their exchange: one for each parameter of all pieces.

    They stay after step() until they are zeroed. Where they are not, the next backward() adds to them: ``kept``, of the
    optimizer, has their shares until its exchange ends, by number of the parameter.
    """

    def __init__(self, pieces: Sequence[Piece], used: Sequence[bool], passes: int, kept: Kept) -> None:
        self._first = pieces[0]  # of whose names the operations have theirs
        self.parameters = [parameter for piece in pieces for parameter in piece.parameters]
        self.used = list(used)
        self.passes = passes
        self.kept = kept
        self.is_stepped = False
        self._shares: list[torch.Tensor | None] = [None] * len(self.parameters)
        self._begins = [0] * len(self.parameters)
        self._norms: dict[float, list[float]] = {}
        before = 0
        for piece in pieces:
            for index, cut in enumerate(piece.cuts):
                number = before + cut.parameter
                gradient, earlier = piece.gradients[index], kept.get(number)
                if not used[number]:
                    gradient = piece.gradients[index] = None
                elif gradient is not None and earlier is not None:
                    gradient.add_(earlier)
                self._shares[number] = gradient
                self._begins[number] = cut.begin
            before += len(piece.parameters)
        kept.clear()

    def put_into_parameters(self) -> None:
        """Each parameter that a rank has used gets its gradient."""
        for number, parameter in enumerate(self.parameters):
            parameter.grad = ShardedGradient(self, number, self._shares[number]) if self.used[number] else None

    @property
    def are_in_parameters(self) -> bool:
        """Nobody has replaced all of them by None or by newer ones."""
        return bool(self.kept) or any(isinstance(parameter.grad, ShardedGradient) for parameter in self.parameters)

    def take_from_parameters(self, pieces: Sequence[Piece]) -> None:
        """A script may have replaced gradients, or taken them away. All ranks call it.

        Afterwards pieces have them, and each parameter has its own again.
        """
        before = 0
        for piece in pieces:
            given = [_whole_if_of_another(parameter) for parameter in piece.parameters]
            shares = {cut.parameter: _share_of(given[cut.parameter], cut, share)
                      for share, cut in zip(piece.shares, piece.cuts)}  # fmt: skip
            piece.gradients = list(shares.values())
            for index, (parameter, one) in enumerate(zip(piece.parameters, given)):
                is_own = isinstance(one, ShardedGradient) and one.gradients is self
                if one is not None and not is_own and before + index < len(self.parameters):
                    parameter.grad = ShardedGradient(self, before + index, shares.get(index))
            before += len(piece.parameters)

    def end_step(self) -> None:
        """They were stepped on. From here on only parameters hold them."""
        self.is_stepped = True
        self._shares = []
        self._norms.clear()

    def norms(self, order: float) -> list[float]:
        """Of the whole gradient of each parameter; 0 for unused ones. All ranks call it."""
        if order not in self._norms:
            shares = [_held_by(parameter) for parameter in self.parameters] if self.is_stepped else self._shares
            self._norms[order] = self._whole_norms(shares, order, "norms")
        return self._norms[order]

    def norm_of(self, gradient: ShardedGradient, order: float) -> float:
        """Of one. All ranks call it."""
        if not gradient.is_derived:
            return self.norms(order)[gradient.number]
        return self._whole_norms([gradient.share], order, "norm")[0]

    def _whole_norms(self, shares: Sequence[torch.Tensor | None], order: float, what: str) -> list[float]:
        if not order > 0:
            raise bad_argument(f"the norm of order {order} of a sharded gradient", "take one of positive order")
        parts = torch.tensor([_part_of_norm(share, order) for share in shares], dtype=torch.float64, device="cpu")
        whole = self.reduce(parts, what, Max if math.isinf(order) else Sum).tolist()
        return whole if math.isinf(order) else [part ** (1 / order) for part in whole]

    def reduce(self, numbers: torch.Tensor, what: str, op: ReduceOp) -> torch.Tensor:
        """Over all ranks, in place."""
        name = self._first.operation(what)
        allreduce_(numbers, name=name, op=op, process_set=self._first.place.process_set)
        return numbers

    def whole(self, gradient: ShardedGradient) -> torch.Tensor:
        """All of it. All ranks call it."""
        flat = torch.zeros(gradient.numel(), dtype=gradient.dtype, device="cpu")
        if gradient.share is not None:
            begin = self._begins[gradient.number]
            flat[begin : begin + gradient.share.numel()] = gradient.share.reshape(-1)
        return self.reduce(flat, f"gradient.{gradient.number}", Sum).view(gradient.shape)

    def changed(self) -> None:
        """A share was written to."""
        self._norms.clear()


def _held_by(parameter: torch.Tensor) -> torch.Tensor | None:
    gradient = parameter.grad
    return gradient.share if isinstance(gradient, ShardedGradient) else None


def _whole_if_of_another(parameter: torch.Tensor) -> torch.Tensor | None:
    gradient = parameter.grad
    if isinstance(gradient, ShardedGradient) and gradient.parameter is not parameter:
        return gradient.full_tensor()  # its share is that of the other one
    return gradient


def _share_of(gradient: torch.Tensor | None, cut: Cut, share: torch.Tensor) -> torch.Tensor | None:
    if isinstance(gradient, ShardedGradient):
        return None if gradient.share is None else gradient.share.to(share.dtype)
    return None if gradient is None else cut.of(gradient).to(share.dtype).view(share.shape)


def keep(parameter: torch.Tensor) -> None:
    """A gradient that was not zeroed becomes a part of the next one."""
    gradient = parameter.grad
    if not isinstance(gradient, ShardedGradient):
        return
    if gradient.parameter is not parameter:
        raise bad_argument(
            f"the .grad of a parameter of shape {tuple(parameter.shape)} is that of another one, and backward() cannot "
            "add to it",
            "call zero_grad() before backward()",
        )
    gradient.gradients.kept[gradient.number] = gradient.share
    parameter.grad = None


def take_out(parameters: Iterable[torch.Tensor]) -> None:
    """They have no gradients of a sharded optimizer any more."""
    for parameter in parameters:
        if isinstance(parameter.grad, ShardedGradient):
            parameter.grad = None


def _part_of_norm(share: torch.Tensor | None, order: float) -> float:
    if share is None:
        return 0.0
    values = share.detach().abs().double()
    return float(values.max() if math.isinf(order) else values.pow(order).sum())


class ShardedGradient(torch.Tensor):
    """The gradient of a parameter, of which this rank has ``share``; None: other ranks have all of it."""

    gradients: StepGradients
    number: int  # of the parameter
    share: torch.Tensor | None
    is_derived: bool  # computed from another one
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(
        cls, gradients: StepGradients, number: int, share: torch.Tensor | None, dtype: torch.dtype | None = None
    ) -> ShardedGradient:
        """Has the shape of the parameter and no memory."""
        parameter = gradients.parameters[number]
        made: ShardedGradient = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, parameter.shape, dtype=dtype or parameter.dtype, device=parameter.device
        )
        made.gradients, made.number, made.share, made.is_derived = gradients, number, share, False
        return made

    @property
    def parameter(self) -> torch.Tensor:
        """That it is of. A script may give it to another one of the same shape."""
        return self.gradients.parameters[self.number]

    def other(self, share: torch.Tensor | None, is_derived: bool) -> ShardedGradient:
        """One for the same parameter."""
        made = ShardedGradient(self.gradients, self.number, share)
        made.is_derived = is_derived
        return made

    def share_memory_(self) -> ShardedGradient:
        """Of torch.nn.Module.share_memory(). Nothing moves: the share is this rank's own."""
        return self

    def full_tensor(self) -> torch.Tensor:
        """The whole gradient, as a tensor of its own. All ranks call it."""
        return self.gradients.whole(self)

    def __repr__(self) -> str:  # type: ignore[override]
        elements = 0 if self.share is None else self.share.numel()
        return f"ShardedGradient(shape={list(self.shape)}, of which this rank has {elements} elements)"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Called for each operation on one."""
        handler = _HANDLERS.get(func.overloadpacket)
        if handler is None:
            raise _refused(func)
        return handler(func, args, kwargs or {})


def _refused(func: Any) -> InvalidError:
    return bad_argument(
        f"{func.overloadpacket.__name__}() on a gradient of a sharded optimizer, of which each rank has a part",
        "call .grad.full_tensor() on all ranks",
    )


def _alias(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return args[0].other(args[0].share, args[0].is_derived)


def _converted(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """To another dtype. A device or memory format is that of the parameter, which torch.nn.Module.to() moves first."""
    source = args[0]
    dtype = kwargs.get("dtype") or source.dtype
    share = None if source.share is None else source.share.to(dtype, copy=True)
    made = ShardedGradient(source.gradients, source.number, share, dtype)
    made.is_derived = True
    return made


def _norm(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    order = args[1] if len(args) > 1 else 2
    if len(args) > 2 and args[2] is not None:
        raise _refused(func)
    norm = args[0].gradients.norm_of(args[0], float(order))
    return torch.tensor(norm, dtype=kwargs.get("dtype") or args[0].dtype, device="cpu")


def _norms(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    order = float(args[1]) if len(args) > 1 else 2.0
    return [torch.tensor(each.gradients.norm_of(each, order), dtype=each.dtype, device="cpu") for each in args[0]]


def _in_place(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Of one or of a list: on the shares."""
    target, *numbers = args
    _check_numbers(func, [*numbers, *kwargs.values()])
    several = isinstance(target, (list, tuple))
    targets = target if several else [target]
    shares = [each.share for each in targets if each.share is not None]
    if several and shares:
        func(shares, *numbers, **kwargs)
    elif shares:
        func(shares[0], *numbers, **kwargs)
    for each in targets:
        each.gradients.changed()
    return None if several else target


def _new(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    source, *numbers = args
    if not isinstance(source, ShardedGradient):  # 2 * gradient
        source, numbers = numbers[0], [source]
    _check_numbers(func, [*numbers, *kwargs.values()])
    share = None if source.share is None else func(source.share, *numbers, **kwargs)
    return source.other(share, is_derived=True)


def _check_numbers(func: Any, arguments: Sequence[Any]) -> None:
    """What the other operands must be: the same for each element."""
    for argument in arguments:
        if isinstance(argument, (list, tuple)) or (isinstance(argument, torch.Tensor) and argument.dim()):
            raise _refused(func)


def _unscale(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Of GradScaler: every rank finds the infinities of all ranks."""
    targets, found_inf, inverse_scale = args
    shares = [each.share for each in targets if each.share is not None]
    if shares:
        func(shares, found_inf, inverse_scale)
    gradients = targets[0].gradients
    gradients.changed()
    gradients.reduce(found_inf, "found_inf", Max)


def _add(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What backward() does with a gradient that is there. One that was stepped on makes room for the new one."""
    gradient, *others = args
    if not isinstance(gradient, ShardedGradient):  # parameter.add_(parameter.grad)
        raise _refused(func)
    passes = gradient.gradients.passes
    if gradient.gradients.is_stepped and len(others) == 1 and not kwargs:
        parameter = gradient.parameter
        if parameter.grad is not gradient:
            raise _refused(func)
        keep(parameter)
        parameter.grad = others[0].detach().clone()
        return gradient
    raise BusyError(
        "GB-O905 IN_FLIGHT: a parameter of a sharded optimizer has another gradient before step() | next: pass "
        f"backward_passes_per_step={passes + 1}, or call step() or zero_grad() after each backward()"
    )


_HANDLERS: dict[Any, _Handler] = {
    _aten.detach: _alias,
    _aten.alias: _alias,
    _aten.clone: _converted,
    _aten._to_copy: _converted,
    _aten.linalg_vector_norm: _norm,
    _aten.mul: _new,
    _aten.div: _new,
    _aten.clamp: _new,
    _aten.add_: _add,
}
for _name in ("mul_", "div_", "clamp_", "clamp_min_", "clamp_max_", "zero_", "nan_to_num_"):
    _HANDLERS[getattr(_aten, _name)] = _in_place
for _name in ("mul_", "div_", "clamp_min_", "clamp_max_", "zero_"):
    if hasattr(_aten, f"_foreach_{_name}"):
        _HANDLERS[getattr(_aten, f"_foreach_{_name}")] = _in_place
_HANDLERS[_aten._foreach_norm] = _norms
_HANDLERS[_aten._amp_foreach_non_finite_check_and_unscale_] = _unscale

"""One rank's parameters and optimizer state to all ranks, in few operations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from .._arrays import check_writable
from .._data_movement import broadcast_
from .._errors import bad_argument
from .._layout import joined_batches, joined_name
from .._objects import broadcast_object
from .._process_sets import ProcessSet, global_process_set
from .._session import current

NamedTensors = list[tuple[str, torch.Tensor]]


def broadcast_parameters(
    parameters: torch.nn.Module | Mapping[str, Any] | Iterable[tuple[str, Any]],
    root_rank: int = 0,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Overwrites every tensor with the root's, in place.

    Args:
        parameters: a ``state_dict()``, ``named_parameters()``, or a module (its state_dict, so with
            buffers). The same names, shapes and dtypes in the same order on all ranks; any dtype.
        root_rank: whose values win; a rank of the job, also with a process set.

    Raises InvalidError (an entry is no tensor), MismatchError (ranks differ), PeerLostError,
    TimeoutError.
    """
    _broadcast_tensors("parameters", _tensors_of(parameters), root_rank, process_set)


def _tensors_of(parameters: Any) -> NamedTensors:
    if isinstance(parameters, torch.nn.Module):
        parameters = parameters.state_dict()
    pairs = parameters.items() if isinstance(parameters, Mapping) else parameters
    named = []
    for name, value in pairs:
        if not isinstance(value, torch.Tensor):
            raise bad_argument(
                f"broadcast_parameters: '{name}' is a {type(value).__name__}, not a tensor",
                "leave it out, or use broadcast_object()",
            )
        _check_memory(value, f"broadcast_parameters: '{name}'")
        named.append((str(name), value))
    return named


def _check_memory(tensor: torch.Tensor, what: str) -> None:
    """Raises InvalidError, before anything is sent, for what has no memory to write to."""
    if isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin):
        raise bad_argument(f"{what} has no shape yet", "call the model once before")
    check_writable(tensor, what)
    if tensor.layout != torch.strided:
        raise bad_argument(f"{what} is sparse ({tensor.layout})", "leave it out, or use broadcast_object()")


def _broadcast_tensors(
    what: str, named: NamedTensors, root_rank: int, process_set: ProcessSet
) -> list[str]:
    """Returns the names of the operations."""
    names = []
    for batch in joined_batches(named, bytes_of):
        tensors = [tensor for _, tensor in batch]
        dtype = str(tensors[0].dtype).replace("torch.", "")
        name = joined_name(what, dtype, sum(tensor.numel() for tensor in tensors), batch)
        if len(tensors) == 1:
            broadcast_(tensors[0], root_rank, name, process_set)
        else:
            _broadcast_joined(tensors, root_rank, name, process_set)
        names.append(name)
    return names


def bytes_of(tensor: torch.Tensor) -> int:
    """Of its elements; torch 1 has no ``nbytes``."""
    return tensor.numel() * tensor.element_size()


@torch.no_grad()
def _broadcast_joined(
    tensors: list[torch.Tensor], root_rank: int, name: str, process_set: ProcessSet
) -> None:
    pieces = [tensor.detach().reshape(-1) for tensor in tensors]
    if len({tensor.device for tensor in tensors}) > 1:
        pieces = [piece.cpu() for piece in pieces]
    joined = torch.cat(pieces)
    broadcast_(joined, root_rank, name, process_set)
    received = torch.split(joined, [tensor.numel() for tensor in tensors])
    for tensor, piece in zip(tensors, received):
        tensor.detach().copy_(piece.view(tensor.shape))


class _Placeholder:
    """Stands for a tensor in the skeleton that is pickled; the tensor itself follows by broadcast."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.shape = tuple(tensor.shape)
        self.dtype = tensor.dtype
        self.device_type = tensor.device.type

    def allocate(self, parameters: Sequence[torch.Tensor], of: torch.Tensor | None) -> torch.Tensor:
        """On this rank's device of that type, which its parameters lie on; else in host memory. Of the state of ``of``.

        A tensor as large as its parameter lies in memory as that does, as torch makes it: fused optimizers need that.
        """
        if of is not None and of.device.type == self.device_type and tuple(of.shape) == self.shape:
            return torch.empty_like(of, dtype=self.dtype, requires_grad=False)
        devices = (p.device for p in parameters if p.device.type == self.device_type)
        return torch.empty(self.shape, dtype=self.dtype, device=next(devices, None))


def _mapped(value: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """`value` with every instance of `kind` inside dicts, lists and tuples replaced."""
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, dict):
        return {key: _mapped(item, kind, change) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_mapped(item, kind, change) for item in value)
    return value


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer,
    root_rank: int = 0,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Gives every rank the root's optimizer state and options (learning rates, betas, ...).

    Works when only the root has state, e.g. after it alone loaded a checkpoint. Tensors arrive bit
    by bit, in any dtype; everything else is pickled. Of a sharded optimizer each rank keeps the state of its share, and
    gets the root's options: all ranks call load_state_dict() before. Raises InvalidError when the optimizers differ
    in class, groups or number of parameters, MismatchError when ranks have loaded other states into a sharded one,
    PeerLostError, TimeoutError.
    """
    is_root = current().rank == root_rank
    refuse_other_states = getattr(optimizer, "_refuse_other_states", None)  # of a sharded optimizer
    has_share = refuse_other_states is not None
    if refuse_other_states is not None:
        refuse_other_states(process_set)
    skeleton, tensors = _skeleton(optimizer, has_share) if is_root else (None, [])
    skeleton = broadcast_object(skeleton, root_rank, process_set=process_set)
    if not is_root:
        _check_same_shape(optimizer, skeleton)
        skeleton = _with_tensors(optimizer, skeleton, tensors)
    named = [(f"tensor{index}", tensor) for index, tensor in enumerate(tensors)]
    _broadcast_tensors("optimizer", named, root_rank, process_set)
    if not is_root:
        _install(optimizer, skeleton, has_share)


def _skeleton(optimizer: torch.optim.Optimizer, has_share: bool) -> tuple[dict[str, Any], list[torch.Tensor]]:
    tensors: list[torch.Tensor] = []

    def take(tensor: torch.Tensor) -> _Placeholder:
        tensors.append(tensor.detach())
        return _Placeholder(tensor)

    groups = [
        {
            **{key: value for key, value in group.items() if key != "params"},
            "params": len(group["params"]),
        }
        for group in optimizer.param_groups
    ]
    numbers = {id(p): number for number, p in enumerate(_parameters_of(optimizer))}
    states = {} if has_share else optimizer.state
    state = {numbers.get(id(key), key): value for key, value in states.items()}
    whole = {"class": plain_name(optimizer), "groups": groups, "state": state}
    return _mapped(whole, torch.Tensor, take), tensors


def _with_tensors(optimizer: torch.optim.Optimizer, skeleton: Any, tensors: list[torch.Tensor]) -> dict[str, Any]:
    """The skeleton with new tensors, which also get into the list, in the order of _skeleton()."""
    parameters = _parameters_of(optimizer)

    def filled(value: Any, of: torch.Tensor | None) -> Any:
        def allocate(held: _Placeholder) -> torch.Tensor:
            tensors.append(held.allocate(parameters, of))
            return tensors[-1]

        return _mapped(value, _Placeholder, allocate)

    groups = filled(skeleton["groups"], None)
    state = {
        key: filled(value, parameters[key] if isinstance(key, int) else None)
        for key, value in skeleton["state"].items()
    }
    return {**skeleton, "groups": groups, "state": state}


def plain_name(optimizer: torch.optim.Optimizer) -> str:
    """Of the class that DistributedOptimizer() was given. Ranks outside of its process set have that one."""
    return getattr(optimizer, "_plain_name", type(optimizer).__name__)


def _parameters_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _check_same_shape(optimizer: torch.optim.Optimizer, skeleton: dict[str, Any]) -> None:
    ours = (plain_name(optimizer), [len(group["params"]) for group in optimizer.param_groups])
    theirs = (skeleton["class"], [group["params"] for group in skeleton["groups"]])
    if ours != theirs:
        raise bad_argument(
            f"broadcast_optimizer_state: this rank has {ours[0]} with groups of {ours[1]} parameters, "
            f"the root has {theirs[0]} with {theirs[1]}",
            "build the same optimizer on every rank",
        )


def _install(optimizer: torch.optim.Optimizer, skeleton: dict[str, Any], has_share: bool) -> None:
    parameters = _parameters_of(optimizer)
    if not has_share:
        optimizer.state.clear()
    for key, value in skeleton["state"].items():
        optimizer.state[parameters[key] if isinstance(key, int) else key] = value
    for group, options in zip(optimizer.param_groups, skeleton["groups"]):
        group.update({key: value for key, value in options.items() if key != "params"})

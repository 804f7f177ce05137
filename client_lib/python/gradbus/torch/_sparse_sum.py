"""The sum or mean of sparse COO tensors: the entries of all ranks, joined."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .. import _data_movement
from .._errors import MismatchError, bad_argument
from .._ops import Average, Sum, checked_op
from .._process_sets import ProcessSet, session_of


def entries_of(tensor: torch.Tensor, verb: str) -> list[torch.Tensor]:
    """What travels: indices and values by row, and one row of facts, which are the same on all ranks."""
    if tensor.layout != torch.sparse_coo:
        raise bad_argument(f"{verb}: the tensor is not sparse (COO)", "pass it .to_dense(), or .to_sparse()")
    facts = torch.tensor([[tensor.sparse_dim(), *tensor.shape]], device="cpu")
    return [tensor._indices().t().contiguous(), tensor._values().detach().contiguous(), facts]


def joined(parts: list[torch.Tensor], like: torch.Tensor, verb: str) -> torch.Tensor:
    """A sparse tensor with all entries, not coalesced. Raises MismatchError for other shapes on other ranks."""
    indices, values, facts = parts
    if not bool((facts == facts[0]).all()):
        shapes = ", ".join(str(tuple(row[1:])) for row in facts.tolist())
        raise MismatchError(
            f"GB-O902 TENSOR_MISMATCH: {verb}: by rank, sparse tensors have the shapes {shapes}, or other sparse "
            "dimensions | next: pass tensors of one shape on all ranks"
        )
    return torch.sparse_coo_tensor(indices.t(), values, like.shape, device=values.device)


def start(
    verb: str, tensor: torch.Tensor, name: str | None, op: Any, process_set: ProcessSet
) -> Callable[[], torch.Tensor]:
    """Returns a function that waits and returns the result, which is not coalesced."""
    chosen = checked_op(op, verb, (Average, Sum))
    handle = _data_movement.grouped_allgather_async(entries_of(tensor, verb), name, process_set)
    size = session_of(process_set, verb).size

    def wait() -> torch.Tensor:
        indices, values, facts = handle.wait()
        if chosen is Average:
            values = values / size
        return joined([indices, values, facts], tensor, verb)

    return wait


def allreduce(
    tensor: Any, name: str | None, op: int, prescale: float, postscale: float, process_set: ProcessSet,
    compression: str | None,
) -> torch.Tensor:  # fmt: skip
    """As gradbus.allreduce(); the result is coalesced."""
    if compression is not None:
        raise bad_argument("allreduce: compression= of a sparse tensor", "leave it out, or pass the tensor .to_dense()")
    if tensor.requires_grad:
        raise bad_argument("allreduce: a sparse tensor has no gradient here", "pass it .detach(), or .to_dense()")
    total = start("allreduce", tensor, name, op, process_set)().coalesce()
    factor = prescale * postscale
    return total if factor == 1 else total * factor


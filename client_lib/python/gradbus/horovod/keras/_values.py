"""Collectives on values. Results are tensors of Keras's backend."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from ... import _differentiable
from ..._errors import bad_argument
from ..._ops import Average
from ...keras import broadcast_variables
from .._arguments import checked_compressor, factors, reduce_op
from .compression import NoneCompressor


def _array(value: Any) -> Any:
    return np.asarray(keras.ops.convert_to_numpy(keras.ops.convert_to_tensor(value)))


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: int | None = None,
    compression: Any = NoneCompressor,
) -> Any:
    """The values of all ranks combined: their mean, unless ``average`` or ``op`` says otherwise."""
    chosen = reduce_op("allreduce", op, average)
    compressor = checked_compressor("allreduce", compression)
    sent, context = compressor.compress(_array(value))
    result = _differentiable.allreduce(sent, name, chosen, *factors(prescale_factor, postscale_factor))
    return keras.ops.convert_to_tensor(compressor.decompress(result, context))


def allgather(value: Any, name: str | None = None) -> Any:
    """All ranks' values joined along axis 0, in the order of ranks. Axis 0 may differ."""
    return keras.ops.convert_to_tensor(_differentiable.allgather(_array(value), name))


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    """The root's value."""
    return keras.ops.convert_to_tensor(_differentiable.broadcast(_array(value), root_rank, name))


def reducescatter(value: Any, name: str | None = None, op: int = Average) -> Any:
    """As allreduce(), and each rank gets its rows of the result; the first ranks get one row more."""
    chosen = reduce_op("reducescatter", op)
    return keras.ops.convert_to_tensor(_differentiable.reducescatter(_array(value), name, chosen))


def broadcast_global_variables(root_rank: int) -> None:
    """Raises InvalidError: Keras 3 has no global variables."""
    raise bad_argument(
        f"broadcast_global_variables: Keras 3 keeps no list of variables that rank {root_rank} could send",
        "use callbacks.BroadcastGlobalVariablesCallback(root_rank), or broadcast_variables(model.variables, root_rank)",
    )


__all__ = ["allgather", "allreduce", "broadcast", "broadcast_global_variables", "broadcast_variables", "reducescatter"]

"""The exchange of the gradients of a step in TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from .._gradients import Settings, exchange, unique_names
from .._modes.array_shards import step_on_shards
from .._modes.arrays import after_step, before_step
from ._calls import in_turn, run
from ._operations import allreduce_rows


def exchange_gradients(
    gradients: Sequence[Any], names: Sequence[str], prefix: str, settings: Settings, sparse_as_dense: bool = False
) -> list[Any]:
    """The gradients of all ranks combined, dense ones in one operation. None stays None: on all ranks, please.

    ``sparse_as_dense``: tf.IndexedSlices become dense; else the rows of all ranks are joined.
    """
    names = unique_names(names)
    results = [tf.convert_to_tensor(g) if sparse_as_dense and g is not None else g for g in gradients]
    dense = [index for index, gradient in enumerate(results) if tf.is_tensor(gradient) and not _is_sparse(gradient)]
    chosen = [names[index] for index in dense]

    def function(*arrays: Any) -> Any:
        made = [np.empty_like(array) for array in arrays]
        exchange(list(zip(chosen, arrays)), prefix, settings, made)
        return made

    tensors = [results[index] for index in dense]
    made: list[Any] = []
    if tensors:
        made = run(function, tensors, [tensor.dtype for tensor in tensors], [tensor.shape for tensor in tensors])
        for index, tensor in zip(dense, made):
            results[index] = tensor
    sparse = [index for index, gradient in enumerate(results) if _is_sparse(gradient)]
    with tf.control_dependencies(made[:1]):
        rows = in_turn([
            partial(allreduce_rows, results[index], f"{prefix}/{names[index]}", settings) for index in sparse
        ])  # fmt: skip
    for index, slices in zip(sparse, rows):
        results[index] = slices
    return results


def exchange_parameters(
    is_after: bool, values: Sequence[Any], names: Sequence[str], prefix: str, settings: Settings
) -> list[Any]:
    """Parameters whose gradients stay local, before or after a step: what to go on from."""
    what = after_step if is_after else before_step

    def function(*arrays: Any) -> Any:
        made = [np.empty_like(array) for array in arrays]
        what(list(zip(names, arrays)), prefix, settings, made)
        return made

    return list(run(function, values, [value.dtype for value in values], [value.shape for value in values]))


def exchange_with_shards(
    gradients: Sequence[Any], values: Sequence[Any], rate: Any, names: Sequence[str], prefix: str, settings: Settings
) -> list[Any]:
    """Parameters that shards hold, after their step. ``values``: those that the gradients were computed with."""
    count = len(names)

    def function(*arrays: Any) -> Any:
        made = [np.empty_like(array) for array in arrays[:count]]
        step_on_shards(list(zip(names, arrays)), arrays[count:-1], float(arrays[-1]), prefix, settings, made)
        return made

    shapes = [value.shape for value in values]
    return list(run(function, [*gradients, *values, rate], [value.dtype for value in values], shapes))


_MARK = "_gradbus_exchanged"  # an attribute


def mark_exchanged(gradients: Sequence[Any]) -> list[Any]:
    """The same gradients. An optimizer of Keras 2 does not exchange them again."""
    for gradient in gradients:
        if gradient is not None:
            setattr(gradient, _MARK, True)
    return list(gradients)


def are_exchanged(gradients: Sequence[Any]) -> bool:
    """All of them have the mark."""
    return all(gradient is None or getattr(gradient, _MARK, False) for gradient in gradients)


def _is_sparse(gradient: Any) -> bool:
    return isinstance(gradient, tf.IndexedSlices)


def names_of(variables: Sequence[Any]) -> list[str]:
    names = [getattr(variable, "path", None) or getattr(variable, "name", "source") for variable in variables]
    return [str(name).removesuffix(":0") for name in names]

"""Collectives with Horovod's arguments, results and gradients, eager and under tf.function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import tensorflow as tf

from ..._errors import bad_argument
from ..._ops import Average, Sum
from ..._parts import name_in_group
from ..._process_sets import ProcessSet, global_process_set, session_of
from ...tensorflow import _operations
from ...tensorflow._calls import in_turn
from ...tensorflow._errors import UnsupportedError, as_tensorflow_errors
from .._arguments import checked_compressor, factors, reduce_op
from .compression import NoneCompressor


def _scaled(tensor: Any, factor: float) -> Any:
    """The tensor. Its gradient will be multiplied."""

    @tf.custom_gradient
    def forward(given: Any) -> Any:
        return tf.identity(given), lambda upstream: upstream * tf.cast(factor, upstream.dtype)

    return forward(tensor)


def _with_mean_gradient(tensor: Any, process_set: ProcessSet, verb: str) -> Any:
    """Horovod's gradient of allgather() and broadcast() is a mean over the ranks; the true one is a sum."""
    return _scaled(tf.convert_to_tensor(tensor), 1.0 / session_of(process_set, verb).size)


def _with_total_gradient(tensor: Any, process_set: ProcessSet, verb: str) -> Any:
    """Horovod's gradient of reducescatter() is larger than the true one by the number of ranks."""
    return _scaled(tf.convert_to_tensor(tensor), float(session_of(process_set, verb).size))


def _compressed(compression: Any, verb: str, tensors: Sequence[Any], operation: Callable[..., Any]) -> list[Any]:
    compressor = checked_compressor(verb, compression)
    pairs = [compressor.compress(tf.convert_to_tensor(tensor)) for tensor in tensors]
    results = operation([tensor for tensor, _ in pairs])
    return [compressor.decompress(result, context) for result, (_, context) in zip(results, pairs)]


@as_tensorflow_errors()
def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = NoneCompressor,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: str | None = None,
) -> list[Any]:
    """allreduce() of several tensors; the dense ones are one operation. Devices and name scopes change nothing."""
    chosen = reduce_op("grouped_allreduce", op, average)
    scales = factors(prescale_factor, postscale_factor)
    results = list(tensors)
    dense = [index for index, tensor in enumerate(results) if not isinstance(tensor, tf.IndexedSlices)]
    if len(dense) < len(results) and chosen not in (Average, Sum):
        raise UnsupportedError(str(bad_argument(
            f"grouped_allreduce: op={chosen.name.title()} of tf.IndexedSlices, whose rows may be on some ranks only",
            "pass hvd.Average or hvd.Sum, or tf.convert_to_tensor(slices)",
        )))  # fmt: skip

    def operation(given: Sequence[Any]) -> list[Any]:
        return _operations.grouped_allreduce(given, name, chosen, *scales, process_set)

    made: list[Any] = []
    if dense:
        made = _compressed(compression, "grouped_allreduce", [results[index] for index in dense], operation)
        for index, tensor in zip(dense, made):
            results[index] = tensor
    sparse = sorted(set(range(len(results))) - set(dense))
    names = [name_in_group(name, index) if len(results) > 1 else name for index in sparse]
    options = (chosen, *scales, process_set)
    with tf.control_dependencies(made[:1]):
        rows = in_turn([partial(_rows_of_all, results[index], one, *options) for index, one in zip(sparse, names)])
    for index, slices in zip(sparse, rows):
        results[index] = slices
    return results


def _rows_of_all(
    slices: Any, name: str | None, op: int, prescale_factor: float, postscale_factor: float, process_set: ProcessSet
) -> Any:
    """tf.IndexedSlices of all ranks. A mean of whole numbers has fractions, as in Horovod: it is not of their dtype."""
    is_mean = op == Average and slices.dtype.is_integer
    chosen = Sum if is_mean else op
    made = _operations.allreduce(slices, name, chosen, prescale_factor, postscale_factor, process_set)
    if not is_mean:
        return made
    size = session_of(process_set, "grouped_allreduce").size
    return tf.IndexedSlices(made.values / tf.cast(size, made.dtype), made.indices, made.dense_shape)


@as_tensorflow_errors()
def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = NoneCompressor,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Any:
    """The tensors of all ranks combined. tf.IndexedSlices give tf.IndexedSlices with the rows of all ranks."""
    return grouped_allreduce(
        [tensor], average, device_dense, device_sparse, compression, op, prescale_factor, postscale_factor,
        process_set, ignore_name_scope, name,
    )[0]  # fmt: skip


@as_tensorflow_errors()
def allgather(
    tensor: Any,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """All ranks' tensors joined along axis 0. The gradient is a mean over the ranks, as in Horovod."""
    return _operations.allgather(_with_mean_gradient(tensor, process_set, "allgather"), name, process_set)


@as_tensorflow_errors()
def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """allgather() of several tensors, one after the other."""
    names = [name_in_group(name, index) for index in range(len(tensors))]
    return in_turn([
        partial(allgather, tensor, one, process_set=process_set) for tensor, one in zip(tensors, names)
    ])  # fmt: skip


@as_tensorflow_errors()
def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The root's tensor. Its gradient is the mean of all ranks' gradients, as in Horovod; the others' are zeros."""
    given = _with_mean_gradient(tensor, process_set, "broadcast")
    return _operations.broadcast(given, root_rank, name, process_set)


@as_tensorflow_errors()
def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends ``splits[r]`` rows of axis 0 to each rank r, and returns what all ranks sent to this one.

    With ``splits`` the result is a pair: that tensor, and how many rows came from each rank, as int32.
    """
    given = tensor
    if splits is not None:  # rows after their sum are not sent
        given = tf.convert_to_tensor(tensor)[: tf.reduce_sum(tf.cast(splits, tf.int64))]
    return _operations.alltoall(given, splits, name, process_set)


@as_tensorflow_errors()
def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: Any = NoneCompressor,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Any]:
    """reducescatter() of several tensors, one after the other."""
    chosen = reduce_op("reducescatter", op)
    if chosen not in (Average, Sum):
        raise bad_argument(f"reducescatter: op={chosen.name.title()} is no mean or sum", "pass hvd.Average or hvd.Sum")

    def operation(given: Sequence[Any]) -> list[Any]:
        return in_turn([
            partial(
                _operations.reducescatter,
                _with_total_gradient(tensor, process_set, "reducescatter"),
                name_in_group(name, index) if len(given) > 1 else name,
                chosen, *factors(prescale_factor, postscale_factor), process_set,
            )
            for index, tensor in enumerate(given)
        ])  # fmt: skip

    return _compressed(compression, "reducescatter", tensors, operation)


@as_tensorflow_errors()
def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: Any = NoneCompressor,
    op: int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """As allreduce(), and each rank gets its rows of the result; the first ranks get one row more."""
    return grouped_reducescatter(
        [tensor], device_dense, compression, op, process_set, ignore_name_scope, name, prescale_factor,
        postscale_factor,
    )[0]  # fmt: skip

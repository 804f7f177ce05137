"""Collectives on tensors of TensorFlow, with gradients, eager and under tf.function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from .. import _data_movement, _differentiable
from .._errors import bad_argument
from .._gradients import Settings, exchange_rows
from .._ops import ALL, ALL_BUT_ADASUM, Average, ReduceOp, Sum
from .._process_sets import ProcessSet, checked_root, global_process_set, session_of
from .._reduction_arguments import ReductionArguments, rows_of_rank
from ._calls import back_name, name_for, run
from ._errors import as_tensorflow_errors


def _check_linear(verb: str, op: int) -> None:
    if op not in (Sum, Average):
        raise bad_argument(
            f"{verb}: {ReduceOp(op).name.title()} has no gradient", "use gradbus.Sum or gradbus.Average"
        )


def _differentiable_run(
    function: Callable[..., Any], tensors: Sequence[Any], shapes: Sequence[Any], back: Callable[..., Any]
) -> list[Any]:
    """``back``: from the gradients of the results to those of the tensors. tf.gather() makes slices of the former."""

    def dense_back(*upstream: Any) -> Any:
        return back(*map(tf.convert_to_tensor, upstream))

    @tf.custom_gradient
    def forward(*given: Any) -> Any:
        return run(function, given, [tensor.dtype for tensor in given], shapes), dense_back

    return list(forward(*tensors))


def _rows(tensor: Any, rows: int | None) -> Any:
    if tensor.shape.rank is None:
        return tf.TensorShape(None)
    return tf.TensorShape([rows, *tensor.shape[1:]])


@as_tensorflow_errors()
def grouped_allreduce(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    compression: str | None = None,
) -> list[Any]:
    """allreduce() of several tensors in one operation."""
    how = ReductionArguments("allreduce", process_set, op, prescale_factor, postscale_factor, ALL, compression)
    given = [tf.convert_to_tensor(tensor) for tensor in tensors]
    chosen = name_for("allreduce", name)
    options = (how.op, prescale_factor, postscale_factor, process_set, compression)

    def back(*upstream: Any) -> Any:
        _check_linear("allreduce", how.op)
        return grouped_allreduce(upstream, back_name(chosen), *options)

    def function(*arrays: Any) -> Any:
        return _differentiable.grouped_allreduce(list(arrays), chosen, *options)

    return _differentiable_run(function, given, [tensor.shape for tensor in given], back)


@as_tensorflow_errors()
def allreduce(
    tensor: Any,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    compression: str | None = None,
) -> Any:
    """The tensors of all ranks combined element by element. Arguments are those of gradbus.allreduce().

    tf.IndexedSlices give tf.IndexedSlices with the rows of all ranks, for Sum and Average. The gradient is the
    all-reduce of the gradients, for the same two.
    """
    if isinstance(tensor, tf.IndexedSlices):
        allowed = (Average, Sum)
        how = ReductionArguments("allreduce", process_set, op, prescale_factor, postscale_factor, allowed, compression)
        settings = Settings(how.op, process_set=process_set)
        return allreduce_rows(_scaled_slices(tensor, how), name_for("allreduce", name) or "tensorflow/rows", settings)
    given = [tensor]
    return grouped_allreduce(given, name, op, prescale_factor, postscale_factor, process_set, compression)[0]


def _scaled_slices(slices: Any, how: ReductionArguments) -> Any:
    """Their values with both factors. Rows are joined, so nothing compresses them."""
    if how.compression not in (None, "none"):
        raise bad_argument(
            f"allreduce: compression={how.compression!r} of tf.IndexedSlices, whose rows travel as they are",
            "leave compression out, or pass tf.convert_to_tensor(slices)",
        )
    scale = how.prescale * how.postscale
    if scale == 1:
        return slices
    if slices.dtype.is_integer:
        raise bad_argument(
            f"allreduce: a factor for tf.IndexedSlices of {slices.dtype.name}", "multiply their values yourself"
        )
    return tf.IndexedSlices(slices.values * tf.cast(scale, slices.dtype), slices.indices, slices.dense_shape)


def allreduce_rows(slices: Any, name: str, settings: Settings) -> Any:
    """tf.IndexedSlices with the rows of all ranks."""
    values, indices = slices.values, slices.indices

    def function(rows: Any, numbers: Any) -> Any:
        all_numbers, all_rows = exchange_rows(name, numbers, rows, settings)
        return all_rows.astype(rows.dtype), all_numbers

    shapes = [_rows(values, None), tf.TensorShape([None])]
    rows, numbers = run(function, [values, indices], [values.dtype, indices.dtype], shapes)
    return tf.IndexedSlices(rows, numbers, slices.dense_shape)


@as_tensorflow_errors()
def broadcast(
    tensor: Any, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """The root's tensor. Its gradient is the sum of all ranks' gradients; the others' are zeros."""
    is_root = checked_root(root_rank, "broadcast", process_set) == session_of(process_set, "broadcast").rank
    given = tf.convert_to_tensor(tensor)
    chosen = name_for("broadcast", name)

    def back(upstream: Any) -> Any:
        total = allreduce(upstream, back_name(chosen), Sum, process_set=process_set)
        with tf.control_dependencies([total]):  # else a graph of tf.compat.v1 leaves it out where it is not used
            return total if is_root else tf.identity(tf.zeros_like(total))

    def function(array: Any) -> Any:
        return [_differentiable.broadcast(array, root_rank, chosen, process_set)]

    return _differentiable_run(function, [given], [given.shape], back)[0]


@as_tensorflow_errors()
def allgather(tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> Any:
    """All ranks' tensors joined along axis 0, in the order of ranks. Axis 0 may differ.

    The gradient is the sum of all ranks' gradients of this rank's rows.
    """
    given = tf.convert_to_tensor(tensor)
    given = tf.reshape(given, [1]) if given.shape.rank == 0 else given
    chosen = name_for("allgather", name)
    session = session_of(process_set, "allgather")

    def back(upstream: Any) -> Any:
        rows = allgather(tf.shape(given, out_type=tf.int64)[:1], back_name(chosen) and f"{chosen}/rows", process_set)
        total = allreduce(upstream, back_name(chosen), Sum, process_set=process_set)
        start = tf.reduce_sum(rows[: session.rank])
        return total[start : start + rows[session.rank]]

    def function(array: Any) -> Any:
        return [_differentiable.allgather(array, chosen, process_set)]

    return _differentiable_run(function, [given], [_rows(given, None)], back)[0]


@as_tensorflow_errors()
def reducescatter(
    tensor: Any,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """As allreduce(), and each rank gets its rows of the result; the first ranks get one row more.

    The gradient is the all-gather of the gradients.
    """
    how = ReductionArguments("reducescatter", process_set, op, prescale_factor, postscale_factor, ALL_BUT_ADASUM)
    given = tf.convert_to_tensor(tensor)
    if given.shape.rank == 0:
        raise bad_argument("reducescatter: the tensor is a scalar", "pass a tensor with an axis 0 to cut")
    chosen = name_for("reducescatter", name)
    known = given.shape.rank is not None and given.shape[0] is not None
    rows = rows_of_rank(given.shape[0], how.session) if known else None

    def back(upstream: Any) -> Any:
        _check_linear("reducescatter", how.op)
        scale = how.prescale * how.postscale / (how.session.size if how.op == Average else 1)
        return allgather(upstream * tf.cast(scale, upstream.dtype), back_name(chosen), process_set)

    def function(array: Any) -> Any:
        return [_differentiable.reducescatter(array, chosen, how.op, how.prescale, how.postscale, process_set)]

    return _differentiable_run(function, [given], [_rows(given, rows)], back)[0]


@as_tensorflow_errors()
def alltoall(
    tensor: Any, splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Sends ``splits[r]`` rows of axis 0 to each rank r, and returns what all ranks sent to this one.

    With ``splits`` the result is a pair: that tensor, and how many rows came from each rank. The gradient goes back the
    same way.
    """
    given = tf.convert_to_tensor(tensor)
    size = session_of(process_set, "alltoall").size
    chosen = name_for("alltoall", name)
    equal = splits is None
    parts = tf.fill([size], tf.shape(given)[0] // size) if equal else tf.cast(splits, tf.int32)

    def function(array: Any, counts: Any) -> Any:
        wanted = None if equal else counts.tolist()
        result, rows = _data_movement.alltoall_rows(array, wanted, chosen, process_set)
        return result, np.asarray(rows, np.int32)

    @tf.custom_gradient
    def forward(array: Any) -> Any:
        shapes = [_rows(array, None), tf.TensorShape([size])]
        result, received = run(function, [array, parts], [array.dtype, tf.int32], shapes)

        def back(upstream: Any, _: Any) -> Any:
            return alltoall(upstream, received, back_name(chosen), process_set)[0]

        return (result, received), back

    result, received = forward(given)
    return result if equal else (result, received)

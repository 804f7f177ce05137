"""Collectives on arrays and pytrees of JAX, with gradients, inside and outside ``jax.jit``."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from .._errors import bad_argument
from .._how import How, rows_of_rank
from .._ops import ALL, ALL_BUT_ADASUM, Average, ReduceOp, Sum
from .._process_sets import ProcessSet, checked_root, global_process_set, session_of
from ._calls import NumberedName, call, is_traced, name_for, text_of

Tree = Any


def _leaves(tree: Tree) -> tuple[list[Any], Any]:
    leaves, structure = jax.tree_util.tree_flatten(tree)
    return [jnp.asarray(leaf) for leaf in leaves], structure


def _differentiable(run: Callable[..., Any], back: Callable[..., Any]) -> Callable[..., Any]:
    """``run`` of arrays, whose cotangents ``back(suffix, ...)`` turns into those of inputs. Integers have none: float0.

    Both rules consist of operations that have rules themselves, so gradients of gradients work to any order. Names in
    ``back`` end with the suffix.
    """
    function = jax.custom_vjp(run)
    passes = itertools.count(1)

    def backward(_: None, given: Any) -> Any:
        cotangents = list(given) if isinstance(given, tuple) else [given]
        real = [index for index, one in enumerate(cotangents) if one.dtype != jax.dtypes.float0]
        # A compiled program with gradients of gradients has several, in any order.
        number = next(passes) if real and is_traced([]) else 1
        suffix = "/backward" if number == 1 else f"/backward{number}"
        for index, cotangent in zip(real, back(suffix, *(cotangents[index] for index in real)) if real else ()):
            cotangents[index] = cotangent
        return tuple(cotangents)

    function.defvjp(lambda *arrays: (function(*arrays), None), backward)
    return function


def _check_linear(verb: str, op: int) -> None:
    if op not in (Sum, Average):
        raise bad_argument(
            f"{verb}: {ReduceOp(op).name.title()} has no gradient", "use gradbus.Sum or gradbus.Average"
        )


def allreduce(
    tree: Tree,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    compression: str | None = None,
) -> Tree:
    """The arrays of all ranks combined element by element; a pytree is one operation.

    Arguments are those of gradbus.allreduce(). The gradient is the all-reduce of the gradients, for Sum and Average.
    Under ``jax.jit`` operations without a name are numbered in the order of tracing.
    """
    how = How("allreduce", process_set, op, prescale_factor, postscale_factor, ALL, compression)
    leaves, structure = _leaves(tree)
    chosen = name_for("allreduce", name, leaves)
    arguments = dict(op=int(how.op), prescale=how.prescale, postscale=how.postscale, compression=compression)

    def run(given: str, *arrays: Any) -> Any:
        return tuple(call(text_of("allreduce", process_set, name=given, **arguments), arrays, arrays))

    def reduced(given: str, *arrays: Any) -> Any:
        def back(suffix: str, *cotangents: Any) -> Any:
            _check_linear("allreduce", how.op)
            return reduced(given + suffix, *cotangents)

        return _differentiable(functools.partial(run, given), back)(*arrays)

    return jax.tree_util.tree_unflatten(structure, reduced(chosen, *leaves))


def broadcast(
    tree: Tree, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Tree:
    """The root's arrays. Its gradient is the sum of all ranks' gradients; the others' are zeros."""
    checked_root(root_rank, "broadcast", process_set)
    leaves, structure = _leaves(tree)
    chosen = name_for("broadcast", name, leaves)

    def sent(given: str, *arrays: Any) -> Any:
        text = text_of("broadcast", process_set, name=given, root=root_rank)
        return _differentiable(
            lambda *own: tuple(call(text, own, own)), lambda suffix, *cotangents: summed(given + suffix, *cotangents)
        )(*arrays)

    def summed(given: str, *arrays: Any) -> Any:
        """On the root, zeros elsewhere. All ranks compile the same: XLA would wait for operations in other orders."""
        text = text_of(
            "allreduce", process_set, name=given, op=int(Sum), prescale=1.0, postscale=1.0, compression=None,
            root=root_rank,
        )  # fmt: skip
        return _differentiable(
            lambda *own: tuple(call(text, own, own)), lambda suffix, *cotangents: sent(given + suffix, *cotangents)
        )(*arrays)

    return jax.tree_util.tree_unflatten(structure, sent(chosen, *leaves))


def _with_rows(array: Any, rows: int) -> Any:
    return jax.ShapeDtypeStruct((rows, *array.shape[1:]), array.dtype)


def allgather(array: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> Any:
    """All ranks' arrays joined along axis 0, in the order of ranks.

    Under ``jax.jit`` and where gradients are taken, all ranks have the same shape: XLA must know the result's.
    """
    array = jnp.atleast_1d(jnp.asarray(array))
    if not is_traced([array]):
        from .._differentiable import allgather as gathered

        return gathered(array, None if isinstance(name, NumberedName) else name, process_set)
    size = session_of(process_set, "allgather").size
    chosen = name_for("allgather", name, [array])

    def run(given: Any) -> Any:
        whole = _with_rows(given, given.shape[0] * size)
        return call(text_of("allgather", process_set, name=chosen), [given], [whole])[0]

    def back(suffix: str, cotangent: Any) -> Any:
        return (reducescatter(cotangent, chosen + suffix, Sum, process_set=process_set),)

    return _differentiable(run, back)(array)


def reducescatter(
    array: Any,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """As allreduce(), and each rank gets its rows of the result; the first ranks get one row more.

    Its gradient needs an axis 0 that all ranks share equally.
    """
    how = How("reducescatter", process_set, op, prescale_factor, postscale_factor, ALL_BUT_ADASUM)
    array = jnp.asarray(array)
    if array.ndim == 0:
        raise bad_argument("reducescatter: the array is a scalar", "pass an array with an axis 0 to cut")
    chosen = name_for("reducescatter", name, [array])
    text = text_of(
        "reducescatter", process_set, name=chosen, op=int(how.op), prescale=how.prescale, postscale=how.postscale
    )

    def run(given: Any) -> Any:
        return call(text, [given], [_with_rows(given, rows_of_rank(given.shape[0], how.session))])[0]

    def back(suffix: str, cotangent: Any) -> Any:
        _check_linear("reducescatter", how.op)
        scale = how.prescale * how.postscale / (how.session.size if how.op == Average else 1)
        return (allgather(cotangent * scale, chosen + suffix, process_set),)

    return _differentiable(run, back)(array)


def alltoall(
    array: Any, splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Sends rows of axis 0 to each rank and returns what all ranks sent to this one.

    ``splits``: rows for each rank, outside ``jax.jit`` only; the result is then a pair with the rows from each rank.
    """
    array = jnp.asarray(array)
    if splits is not None:
        if is_traced([array]):
            raise bad_argument("alltoall: splits= under jax.jit", "leave splits out, or call it outside jax.jit")
        from .._differentiable import alltoall as exchanged

        return exchanged(array, splits, name, process_set)
    chosen = name_for("alltoall", name, [array])

    def run(given: Any) -> Any:
        return call(text_of("alltoall", process_set, name=chosen), [given], [given])[0]

    def back(suffix: str, cotangent: Any) -> Any:
        return (alltoall(cotangent, None, chosen + suffix, process_set),)

    return _differentiable(run, back)(array)

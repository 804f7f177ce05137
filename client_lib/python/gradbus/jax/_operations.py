"""Collectives on arrays and pytrees of JAX, with gradients, inside and outside ``jax.jit``."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from .._errors import bad_argument
from .._ops import ALL, ALL_BUT_ADASUM, Average
from .._process_sets import ProcessSet, checked_root, global_process_set
from .._reduction_arguments import ReductionArguments
from ._calls import NumberedName, is_traced, name_for, text_of
from ._primitive import call

Tree = Any


def _leaves(tree: Tree) -> tuple[list[Any], Any]:
    leaves, structure = jax.tree_util.tree_flatten(tree)
    return [jnp.asarray(leaf) for leaf in leaves], structure


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
    how = ReductionArguments("allreduce", process_set, op, prescale_factor, postscale_factor, ALL, compression)
    leaves, structure = _leaves(tree)
    chosen = name_for("allreduce", name, leaves)
    text = text_of(
        "allreduce", process_set, name=chosen, op=int(how.op), prescale=how.prescale, postscale=how.postscale,
        compression=compression,
    )  # fmt: skip
    return jax.tree_util.tree_unflatten(structure, call(text, leaves))


def broadcast(
    tree: Tree, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Tree:
    """The root's arrays. Its gradient is the sum of all ranks' gradients; the others' are zeros."""
    checked_root(root_rank, "broadcast", process_set)
    leaves, structure = _leaves(tree)
    chosen = name_for("broadcast", name, leaves)
    text = text_of("broadcast", process_set, name=chosen, root=root_rank)
    return jax.tree_util.tree_unflatten(structure, call(text, leaves))


def allgather(array: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> Any:
    """All ranks' arrays joined along axis 0, in the order of ranks.

    Under ``jax.jit`` and where gradients are taken, all ranks have the same shape: XLA must know the result's.
    """
    array = jnp.atleast_1d(jnp.asarray(array))
    if not is_traced([array]):
        from .._differentiable import allgather as gathered

        return gathered(array, None if isinstance(name, NumberedName) else name, process_set)
    chosen = name_for("allgather", name, [array])
    return call(text_of("allgather", process_set, name=chosen), [array])[0]


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
    how = ReductionArguments("reducescatter", process_set, op, prescale_factor, postscale_factor, ALL_BUT_ADASUM)
    array = jnp.asarray(array)
    if array.ndim == 0:
        raise bad_argument("reducescatter: the array is a scalar", "pass an array with an axis 0 to cut")
    chosen = name_for("reducescatter", name, [array])
    text = text_of(
        "reducescatter", process_set, name=chosen, op=int(how.op), prescale=how.prescale, postscale=how.postscale
    )
    return call(text, [array])[0]


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
    return call(text_of("alltoall", process_set, name=chosen), [array])[0]

"""Data-parallel training with optax: gradients are exchanged in one operation for each step."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from .._errors import bad_argument
from .._gradients import Gradient, Settings, broadcast_arrays, new_prefix, settings_of, unique_names
from .._layout import DEFAULT_BUCKET_BYTES
from .._modes.arrays import flush as flush_arrays
from .._modes.arrays import local_numbers
from .._ops import Average
from .._process_sets import ProcessSet, global_process_set
from ._calls import text_of
from ._primitive import call

Tree = Any


def _named_leaves(tree: Tree) -> tuple[list[str], list[Any], Any]:
    pairs, structure = jax.tree_util.tree_flatten_with_path(tree)
    names = [jax.tree_util.keystr(path, simple=True, separator=".") or "value" for path, _ in pairs]
    return unique_names(names), [leaf for _, leaf in pairs], structure


def parameters_named(
    is_after: bool, names: Sequence[str], arrays: Sequence[Any], prefix: str, settings: Settings
) -> list[Any]:
    """Parameters whose gradients stay local, before or after a step: what to go on from; one call of XLA."""
    verb = "after_step" if is_after else "before_step"
    text = text_of(
        verb, settings.process_set, name=f"{prefix}/{verb}", of=prefix, names=list(names),
        compression=settings.compression, bucket_bytes=settings.bucket_bytes,
    )  # fmt: skip
    return call(text, arrays)


def exchange_named(names: Sequence[str], arrays: Sequence[Any], prefix: str, settings: Settings) -> list[Any]:
    """The arrays of all ranks combined; one call of XLA."""
    if not arrays:
        return []
    text = text_of(
        "exchange", settings.process_set, name=prefix, names=list(names), op=int(settings.op),
        compression=settings.compression, bucket_bytes=settings.bucket_bytes,
        has_parameters=settings.has_parameters,
    )  # fmt: skip
    return call(text, arrays)


def _exchanged(gradients: Tree, prefix: str, settings: Settings) -> Tree:
    names, leaves, structure = _named_leaves(gradients)
    return jax.tree_util.tree_unflatten(structure, exchange_named(names, leaves, prefix, settings))


def exchange_gradients(gradients: Tree, name: str, op: int = Average, **options: Any) -> Tree:
    """The gradients of all ranks combined, as a tree of the same structure; one call of XLA.

    ``name``: of this set of gradients, the same on every rank. ``options``: those of distributed().
    """
    return _exchanged(gradients, name, settings_of("exchange_gradients", op, **options))


class _Parameters:
    """Those of one update(), where the mode keeps gradients local. Optax returns updates: differences to ``params``."""

    def __init__(self, gradients: Tree, params: Tree, prefix: str, settings: Settings) -> None:
        names, leaves, _ = _named_leaves(gradients)
        described = [Gradient(name, tuple(leaf.shape), str(leaf.dtype)) for name, leaf in zip(names, leaves)]
        self._chosen = local_numbers(described, prefix, settings)
        self._names = [names[number] for number in self._chosen]
        self._params = params
        self._prefix = prefix
        self._settings = settings
        if self._chosen and params is None:
            raise bad_argument(
                f"update() without parameters, and the mode of '{self._names[0]}' exchanges parameters",
                "call optimizer.update(gradients, state, params)",
            )

    def before_step(self) -> Tree:
        """The parameters to step from."""
        return self._moved(False, self._params) if self._chosen else self._params

    def after_step(self, begin: Tree, updates: Tree) -> Tree:
        """The updates that lead from the given parameters to those to go on from."""
        if not self._chosen:
            return updates
        stepped = jax.tree_util.tree_map(lambda value, update: value + update.astype(value.dtype), begin, updates)
        return jax.tree_util.tree_map(lambda to, given: to - given, self._moved(True, stepped), self._params)

    def _moved(self, is_after: bool, params: Tree) -> Tree:
        leaves, structure = jax.tree_util.tree_flatten(params)
        chosen = [leaves[number] for number in self._chosen]
        made = parameters_named(is_after, self._names, chosen, self._prefix, self._settings)
        for number, array in zip(self._chosen, made):
            leaves[number] = array
        return jax.tree_util.tree_unflatten(structure, leaves)


def distributed(
    optimizer: Any,
    op: int = Average,
    compression: str | None = None,
    process_set: ProcessSet = global_process_set,
    gradient_predivide_factor: float = 1.0,
    bucket_bytes: int = DEFAULT_BUCKET_BYTES,
) -> Any:
    """An optax optimizer that steps on the mean or sum of all ranks' gradients.

    Args:
        optimizer: any optax.GradientTransformation. To add up several gradients locally before each exchange, wrap
            the result: ``optax.MultiSteps(gradbus.distributed(optimizer), 4)``.
        op: gradbus.Average or gradbus.Sum.
        compression: a codec between nodes, such as "topk:ratio=0.01"; None: the policy of the job.
        process_set: the ranks that share this model.
        gradient_predivide_factor: Horovod's; it changes nothing.
        bucket_bytes: how much travels together.

    ``update()`` works inside and outside ``jax.jit``. All ranks make their optimizers in the same order. Raises
    InvalidError here, and MismatchError, PeerLostError or TimeoutError when gradients are exchanged.
    """
    try:
        import optax
    except ImportError:
        raise bad_argument("gradbus.jax.distributed: optax is not installed", "pip install optax") from None
    if not (hasattr(optimizer, "init") and hasattr(optimizer, "update")):
        raise bad_argument(
            f"distributed: a {type(optimizer).__name__} is no optimizer of optax", "pass optax.sgd(0.1) or another"
        )
    settings = settings_of("distributed", op, compression, process_set, gradient_predivide_factor, bucket_bytes)
    settings = dataclasses.replace(settings, has_parameters=True)
    prefix = new_prefix("jax")
    inner = optax.with_extra_args_support(optimizer)

    def update(gradients: Tree, state: Any, params: Tree = None, **extra: Any) -> Any:
        parameters = _Parameters(gradients, params, prefix, settings)
        begin = parameters.before_step()
        updates, state = inner.update(_exchanged(gradients, prefix, settings), state, begin, **extra)
        return parameters.after_step(begin, updates), state

    update.gradbus = (prefix, settings)  # type: ignore[attr-defined]
    return optax.GradientTransformationExtraArgs(inner.init, update)


def flush(optimizer: Any, params: Tree) -> Tree:
    """In modes that exchange parameters: those of all ranks, the same bits on each. Call it outside ``jax.jit``.

    Args:
        optimizer: what distributed() returned.
        params: this rank's parameters after a step.

    All ranks call it. In other modes it returns ``params``. Raises InvalidError, MismatchError, PeerLostError,
    TimeoutError.
    """
    known = getattr(getattr(optimizer, "update", None), "gradbus", None)
    if known is None:
        raise bad_argument("flush: this is not what distributed() returned", "pass that, not a wrapper of it")
    prefix, settings = known
    names, leaves, structure = _named_leaves(params)
    described = [Gradient(name, tuple(leaf.shape), str(leaf.dtype)) for name, leaf in zip(names, leaves)]
    chosen = local_numbers(described, prefix, settings)
    arrays = [np.array(leaves[number]) for number in chosen]
    if chosen:
        flush_arrays(list(zip([names[number] for number in chosen], arrays)), prefix, settings, arrays)
    for number, array in zip(chosen, arrays):
        leaves[number] = jax.device_put(array, getattr(leaves[number], "sharding", None))
    return jax.tree_util.tree_unflatten(structure, leaves)


def broadcast_parameters(
    tree: Tree, root_rank: int = 0, process_set: ProcessSet = global_process_set, name: str = "parameters"
) -> Tree:
    """A tree of the root's arrays: parameters, or the state of an optimizer. Call it outside ``jax.jit``."""
    names, leaves, structure = _named_leaves(tree)
    if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        raise bad_argument("broadcast_parameters: called under jax.jit", "call it before the first step, outside")
    arrays = broadcast_arrays(name, list(zip(names, map(np.asarray, leaves))), root_rank, process_set)
    made = [
        jax.device_put(array, leaf.sharding) if isinstance(leaf, jax.Array) else type(leaf)(array)
        if isinstance(leaf, (bool, int, float)) else array
        for leaf, array in zip(leaves, arrays)
    ]
    return jax.tree_util.tree_unflatten(structure, made)

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
from .._modes.array_shards import flush_shards, name_optimizer_error, parameters_on_shards
from .._modes.arrays import flush as flush_arrays
from .._modes.arrays import local_numbers
from .._modes.kinds import said_in
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
    is_after: bool, names: Sequence[str], arrays: Sequence[Any], prefix: str, settings: Settings, behind: Any = ()
) -> list[Any]:
    """Parameters whose gradients stay local, before or after a step: what to go on from; one call of XLA.

    ``behind``: results of the call that XLA performs first, on all ranks alike.
    """
    verb = "after_step" if is_after else "before_step"
    text = text_of(
        verb, settings.process_set, name=f"{prefix}/{verb}", of=prefix, names=list(names),
        compression=settings.compression, bucket_bytes=settings.bucket_bytes,
    )  # fmt: skip
    return call(text, [*arrays, *behind[:1]])


def stepped_on_shards(
    names: Sequence[str], gradients: Sequence[Any], arrays: Sequence[Any], rate: Any, prefix: str, settings: Settings
) -> list[Any]:
    """Parameters that shards hold, after their step on these results of exchange_named(); one call of XLA.

    ``rate``: an array without axes; None: the mode has it.
    """
    text = text_of(
        "step_on_shards", settings.process_set, name=f"{prefix}/step_on_shards", of=prefix, names=list(names),
        op=int(settings.op), compression=settings.compression, bucket_bytes=settings.bucket_bytes,
        has_rate=rate is not None,
    )  # fmt: skip
    return call(text, [*gradients, *arrays, *([] if rate is None else [rate])])


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


def _described(tree: Tree) -> tuple[list[str], list[Any], Any, list[Gradient]]:
    names, leaves, structure = _named_leaves(tree)
    described = [Gradient(name, tuple(leaf.shape), str(leaf.dtype)) for name, leaf in zip(names, leaves)]
    return names, leaves, structure, described


def _numbers_on_shards(described: Sequence[Gradient], prefix: str, settings: Settings) -> list[int]:
    """Numbers of the parameters that shards hold."""
    found = parameters_on_shards(described, prefix, settings)
    for text in found.values():
        if not {"optimizer", "lr"} <= said_in(text):
            raise name_optimizer_error("optax does not tell shards how to step", text, "lr=0.001")
    return list(found)


class _Parameters:
    """Those of one update(), where the mode keeps gradients local. Optax returns updates: differences to ``params``."""

    def __init__(self, gradients: Tree, params: Tree, prefix: str, settings: Settings) -> None:
        self._names, _, _, described = _described(gradients)
        self._moving = local_numbers(described, prefix, settings)
        self._shard_numbers = _numbers_on_shards(described, prefix, settings)
        self._params = params
        self._prefix = prefix
        self._settings = settings
        chosen = [*self._moving, *self._shard_numbers]
        if chosen and params is None:
            raise bad_argument(
                f"update() without parameters, and the mode of '{self._names[chosen[0]]}' exchanges parameters",
                "call optimizer.update(gradients, state, params)",
            )

    def before_step(self) -> Tree:
        """The parameters to step from."""
        return _replaced(self._params, self._moving, self._moved(False, self._params))

    def updates(self, begin: Tree, exchanged: Tree, updates: Tree) -> Tree:
        """The updates that lead from the given parameters to those to go on from.

        ``begin``: before_step(); ``updates``: those of optax from there, on the exchanged gradients.
        """
        if not self._moving and not self._shard_numbers:
            return updates
        stepped = jax.tree_util.tree_map(lambda value, update: value + update.astype(value.dtype), begin, updates)
        of_shards = self._stepped_on_shards(exchanged)
        stepped = _replaced(stepped, self._shard_numbers, of_shards)
        stepped = _replaced(stepped, self._moving, self._moved(True, stepped, of_shards))
        chosen = [*self._moving, *self._shard_numbers]
        given, made = jax.tree_util.tree_leaves(self._params), jax.tree_util.tree_leaves(stepped)
        return _replaced(updates, chosen, [made[number] - given[number] for number in chosen])

    def _stepped_on_shards(self, exchanged: Tree) -> list[Any]:
        if not self._shard_numbers:
            return []
        names, gradients, params = (
            [leaves[number] for number in self._shard_numbers]
            for leaves in (self._names, *map(jax.tree_util.tree_leaves, (exchanged, self._params)))
        )
        return stepped_on_shards(names, gradients, params, None, self._prefix, self._settings)

    def _moved(self, is_after: bool, params: Tree, behind: Sequence[Any] = ()) -> list[Any]:
        if not self._moving:
            return []
        leaves = jax.tree_util.tree_leaves(params)
        names = [self._names[number] for number in self._moving]
        arrays = [leaves[number] for number in self._moving]
        return parameters_named(is_after, names, arrays, self._prefix, self._settings, behind)


def _replaced(tree: Tree, numbers: Sequence[int], values: Sequence[Any]) -> Tree:
    """The tree with other leaves in these places."""
    leaves, structure = jax.tree_util.tree_flatten(tree)
    for number, value in zip(numbers, values):
        leaves[number] = value
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
        exchanged = _exchanged(gradients, prefix, settings)
        updates, state = inner.update(exchanged, state, begin, **extra)
        return parameters.updates(begin, exchanged, updates), state

    update.gradbus = (prefix, settings)  # type: ignore[attr-defined]
    return optax.GradientTransformationExtraArgs(inner.init, update)


def flush(optimizer: Any, params: Tree) -> Tree:
    """In modes that exchange parameters or have them on shards: those of all ranks, the same bits on each.

    Args:
        optimizer: what distributed() returned.
        params: this rank's parameters after a step.

    All ranks call it, outside ``jax.jit``. In other modes it returns ``params``. Raises InvalidError, MismatchError,
    PeerLostError, TimeoutError.
    """
    known = getattr(getattr(optimizer, "update", None), "gradbus", None)
    if known is None:
        raise bad_argument("flush: this is not what distributed() returned", "pass that, not a wrapper of it")
    prefix, settings = known
    names, leaves, structure, described = _described(params)
    for numbers, what in (
        (local_numbers(described, prefix, settings), flush_arrays),
        (_numbers_on_shards(described, prefix, settings), flush_shards),
    ):
        arrays = [np.array(leaves[number]) for number in numbers]
        if numbers:
            what([(names[number], array) for number, array in zip(numbers, arrays)], prefix, settings, arrays)
        for number, array in zip(numbers, arrays):
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

"""Operations as texts, and what performs them: at once, or from a compiled program.

An operation is a text (JSON) that says all about it but the arrays, so that a compiled program means the same in any
process. With values it is performed at once; under a trace it becomes a call of XLA (`_xla.py`) that performs it later.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from .. import _data_movement, _reductions
from .._api import synchronize
from .._differentiable import allgather, alltoall, reducescatter
from .._errors import bad_argument
from .._gradients import EXCHANGES, Gradient, Settings
from .._handles import standing_for_main_thread
from .._modes.array_shards import step_on_shards
from .._modes.arrays import after_step, before_step
from .._ops import Average, ReduceOp
from .._parts import name_in_group
from .._process_sets import ProcessSet, _added, checked_root, global_process_set, session_of

TARGET = "gradbus_operation"


def text_of(verb: str, process_set: ProcessSet, **arguments: Any) -> str:
    """An operation as a text. Equal on all ranks that mean the same."""
    ranks = None if process_set is global_process_set else list(process_set.ranks)
    numbered = isinstance(arguments.get("name"), NumberedName)
    return json.dumps({"verb": verb, "ranks": ranks, "numbered": numbered, **arguments}, sort_keys=True)


class NumberedName(str):
    """A name that nobody gave. Outside of a trace the operation has none: each name keeps shared memory."""


_calls: dict[str, itertools.count[int]] = {}


def name_for(verb: str, name: str | None, arrays: Sequence[Any]) -> str:
    """The name, or one by the number of such operations so far: XLA orders unnamed operations as it likes."""
    if name is not None:
        return name
    first = f"{arrays[0].dtype}{list(arrays[0].shape)}" if arrays else ""
    what = f"jax/{verb}/{len(arrays)}x{first}"
    return NumberedName(f"{what}/{next(_calls.setdefault(what, itertools.count()))}")


@functools.cache
def _identity() -> Any:
    return jax.jit(lambda number: number)


def is_traced(arrays: Sequence[Any]) -> bool:
    """A program is being traced. It performs operations on arrays from outside it, too, each time that it runs."""
    is_tracer = any(isinstance(array, jax.core.Tracer) for array in arrays)
    return is_tracer or isinstance(_identity()(np.float32(0)), jax.core.Tracer)


def call_now(operation: dict[str, Any], arrays: Sequence[Any], shapes: Sequence[Any]) -> list[Any]:
    """``shapes``: objects with the shape and dtype of each result."""
    outputs = [np.empty(shape.shape, shape.dtype) for shape in shapes]
    if operation["numbered"]:
        operation = {**operation, "name": None}
    perform(operation, [np.asarray(array) for array in arrays], outputs)
    shardings = [getattr(array, "sharding", None) for array in arrays]
    like = shardings if len(shardings) == len(outputs) else shardings[:1] * len(outputs)
    return [jax.device_put(output, sharding) for output, sharding in zip(outputs, like)]


@functools.lru_cache(maxsize=4096)
def parsed(text: str) -> dict[str, Any]:
    return json.loads(text)  # type: ignore[no-any-return]


def process_set_of(operation: dict[str, Any]) -> ProcessSet:
    ranks = operation["ranks"]
    if ranks is None:
        return global_process_set
    found = next((known for known in _added if list(known.ranks) == ranks), None)
    if found is None:
        raise bad_argument(f"process set {ranks} is not known", "call gradbus.add_process_set() on every rank first")
    return found


def perform(operation: dict[str, Any], inputs: list[Any], outputs: list[Any]) -> None:
    """On NumPy arrays. Blocks until all ranks have come."""
    with standing_for_main_thread():
        _VERBS[operation["verb"]](operation, inputs, outputs, process_set_of(operation))


def _allreduce(operation: dict[str, Any], inputs: list[Any], outputs: list[Any], process_set: ProcessSet) -> None:
    for array, output in zip(inputs, outputs):
        output[...] = array
    synchronize(
        _reductions.grouped_allreduce_async_(
            outputs, operation["name"], operation["op"], operation["prescale"], operation["postscale"], process_set,
            operation["compression"],
        )
    )  # fmt: skip
    root = operation.get("root")
    if root is not None and checked_root(root, "broadcast", process_set) != session_of(process_set, "broadcast").rank:
        for output in outputs:
            output[...] = 0


def _broadcast(operation: dict[str, Any], inputs: list[Any], outputs: list[Any], process_set: ProcessSet) -> None:
    for index, (array, output) in enumerate(zip(inputs, outputs)):
        output[...] = array
        _data_movement.broadcast_(output, operation["root"], name_in_group(operation["name"], index), process_set)


def _fill(output: Any, result: Any, name: str) -> None:
    if output.shape != result.shape:
        raise bad_argument(
            f"'{name}': the result has shape {result.shape} where jax.jit expects {output.shape}",
            "give the array the same shape on every rank, or call the operation outside jax.jit",
        )
    output[...] = result


def _allgather(operation: dict[str, Any], inputs: list[Any], outputs: list[Any], process_set: ProcessSet) -> None:
    _fill(outputs[0], allgather(inputs[0], operation["name"], process_set), operation["name"])


def _alltoall(operation: dict[str, Any], inputs: list[Any], outputs: list[Any], process_set: ProcessSet) -> None:
    _fill(outputs[0], alltoall(inputs[0], None, operation["name"], process_set), operation["name"])


def _reducescatter(operation: dict[str, Any], inputs: list[Any], outputs: list[Any], process_set: ProcessSet) -> None:
    result = reducescatter(
        inputs[0], operation["name"], operation["op"], operation["prescale"], operation["postscale"], process_set
    )
    _fill(outputs[0], result, operation["name"])


def _exchange(operation: dict[str, Any], inputs: list[Any], outputs: list[Any], process_set: ProcessSet) -> None:
    names = operation["names"]
    gradients = [Gradient(name, tuple(array.shape), str(array.dtype)) for name, array in zip(names, inputs)]
    settings = Settings(
        ReduceOp(operation["op"]), operation["compression"], process_set, operation["bucket_bytes"],
        operation["has_parameters"],
    )  # fmt: skip
    EXCHANGES.of(operation["name"], settings, gradients).run(inputs, outputs)


def _move_parameters(
    what: Any, operation: dict[str, Any], inputs: list[Any], outputs: list[Any], process_set: ProcessSet
) -> None:
    compression, bucket_bytes = operation["compression"], operation["bucket_bytes"]
    settings = Settings(Average, compression, process_set, bucket_bytes, has_parameters=True)
    what(list(zip(operation["names"], inputs)), operation["of"], settings, outputs)


def _step_on_shards(operation: dict[str, Any], inputs: list[Any], outputs: list[Any], process_set: ProcessSet) -> None:
    """``inputs``: gradients, the parameters that they were computed with, and a learning rate that the mode has not."""
    names, op = operation["names"], ReduceOp(operation["op"])
    settings = Settings(
        op, operation["compression"], process_set, operation["bucket_bytes"], has_parameters=True)
    rate = float(inputs[2 * len(names)]) if operation["has_rate"] else None
    parameters = inputs[len(names) : 2 * len(names)]
    step_on_shards(list(zip(names, inputs)), parameters, rate, operation["of"], settings, outputs)


_VERBS = {
    "allreduce": _allreduce,
    "broadcast": _broadcast,
    "allgather": _allgather,
    "alltoall": _alltoall,
    "reducescatter": _reducescatter,
    "exchange": _exchange,
    "before_step": functools.partial(_move_parameters, before_step),
    "after_step": functools.partial(_move_parameters, after_step),
    "step_on_shards": _step_on_shards,
}

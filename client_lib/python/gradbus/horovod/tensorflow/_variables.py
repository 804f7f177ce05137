"""The root's variables and objects on all ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ... import _objects
from ..._errors import bad_argument
from ..._process_sets import ProcessSet, global_process_set
from ...tensorflow import _variables


def broadcast_variables(
    variables: Sequence[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
    inplace: bool = False,
) -> Any:
    """Assigns the root's values, in few operations. In a graph the result is an operation that does so.

    ``inplace`` changes nothing.
    """
    return _variables.broadcast_variables(variables, root_rank, process_set)


def broadcast_(
    variables: Sequence[Any],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Assigns the root's values and returns them. ``name`` changes nothing: the variables have names."""
    done = _variables.broadcast_variables(variables, root_rank, process_set)
    with tf.control_dependencies([] if done is None else [done]):
        plain = [variable.value if hasattr(variable, "path") else variable for variable in variables]  # of Keras
        return [variable.read_value() for variable in plain]


def broadcast_global_variables(root_rank: int) -> Any:
    """Of a graph of tf.compat.v1: the operation that gives all ranks the root's values. Refused if eager."""
    if tf.executing_eagerly():
        raise bad_argument(
            "broadcast_global_variables: there are no global variables outside of a graph",
            "call hvd.broadcast_variables(model.variables, root_rank=0)",
        )
    return _variables.broadcast_global_variables(root_rank)


def broadcast_object(
    obj: Any = None,
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The root's object, on every rank. ``session`` is not needed: no graph takes part."""
    return _objects.broadcast_object(obj, root_rank, name, process_set)


def broadcast_object_fn(
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Callable[[Any], Any]:
    """broadcast_object() as a function of the object."""
    return lambda obj: _objects.broadcast_object(obj, root_rank, name, process_set)


def allgather_object(
    obj: Any, session: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Every rank's object, in rank order. ``session`` is not needed."""
    return _objects.allgather_object(obj, name, process_set)

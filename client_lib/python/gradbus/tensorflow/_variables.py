"""The root's variables on all ranks: eager, under tf.function, and in sessions of tf.compat.v1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from .._gradients import broadcast_arrays, unique_names
from .._process_sets import ProcessSet, checked_root, global_process_set
from ._calls import run
from ._exchange import names_of


def broadcast_variables(
    variables: Sequence[Any], root_rank: int = 0, process_set: ProcessSet = global_process_set
) -> Any:
    """Assigns the root's values, in few operations. In a graph the result is an operation that does so.

    ``variables``: tf.Variable or keras.Variable, the same in the same order on all ranks.
    """
    checked_root(root_rank, "broadcast_variables", process_set)
    variables = [variable.value if hasattr(variable, "path") else variable for variable in variables]
    if not variables:
        return tf.no_op() if not tf.executing_eagerly() else None
    names = unique_names(names_of(variables))

    def function(*arrays: Any) -> Any:
        return broadcast_arrays("variables", list(zip(names, arrays)), root_rank, process_set)

    values = [tf.convert_to_tensor(variable) for variable in variables]
    made = run(function, values, [value.dtype for value in values], [value.shape for value in values])
    return tf.group([variable.assign(value) for variable, value in zip(variables, made)])


def broadcast_global_variables(root_rank: int = 0) -> Any:
    """Of a graph of tf.compat.v1: the operation that gives all ranks the root's values."""
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc,unused-ignore]
    """For MonitoredTrainingSession: all ranks begin with the root's variables, also after a restore."""

    def __init__(self, root_rank: int = 0, device: str = "") -> None:
        """``device``: Horovod's; it changes nothing."""
        super().__init__()
        self._root_rank = root_rank
        self._operation: Any = None

    def begin(self) -> None:
        """Adds the operation to the graph before it is closed."""
        if self._operation is None or self._operation.graph is not tf.compat.v1.get_default_graph():
            self._operation = broadcast_global_variables(self._root_rank)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Runs it."""
        session.run(self._operation)

"""``hvd.elastic`` of TensorFlow: states with variables, in eager mode and in sessions of tf.compat.v1.

The job survives the loss of an agent or a link, with the same processes. The number of ranks never changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ... import _objects
from ..._errors import bad_argument
from ..._session import rank
from .._elastic import VariablesState, run
from ..common import elastic
from ..keras._model_state import ModelState
from .functions import broadcast_object

__all__ = ["ObjectState", "TensorFlowKerasState", "TensorFlowState", "run"]


class ObjectState(elastic.ObjectState):
    """Named Python values that a job can restore: ``ObjectState(hvd.broadcast_object, hvd.rank, step=0)``."""

    def __init__(
        self,
        bcast_object: Callable[..., Any] = broadcast_object,
        get_rank: Callable[[], int] = rank,
        **kwargs: Any,
    ) -> None:
        """Raises InvalidError for functions other than these two."""
        chosen = _objects.broadcast_object if bcast_object is broadcast_object else bcast_object
        super().__init__(chosen, get_rank, **kwargs)


class TensorFlowKerasState(ModelState):
    """A model of Keras, its optimizer and named values that a job can restore, in eager mode.

    ``TensorFlowKerasState(model, optimizer, batch=0, epoch=0)``. ``backend`` changes nothing.
    """


class TensorFlowState(VariablesState):
    """Variables of TensorFlow and named values that a job can restore: ``TensorFlowState(variables, step=0)``.

    ``variables``: default tf.compat.v1.global_variables(), which is for graphs. ``session``: it holds the variables of
    a graph; default: the one of the ``with`` block in which the state is used.
    """

    def __init__(self, variables: Sequence[Any] | None = None, session: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.variables = list(variables or tf.compat.v1.global_variables())
        self.session = session
        if not self.variables:
            raise bad_argument("TensorFlowState: there are no variables", "pass variables=, or use ObjectState")

    def _session(self) -> Any:
        """None: TensorFlow is eager."""
        if tf.executing_eagerly():
            return None
        found = self.session or tf.compat.v1.get_default_session()
        if found is None:
            raise bad_argument("TensorFlowState: there is no session", "pass session=, or use it in `with session:`")
        return found

    def _variables(self) -> list[Any]:
        return self.variables

    def _read(self) -> list[Any]:
        session = self._session()
        values = [one.numpy() for one in self.variables] if session is None else session.run(self.variables)
        return [np.array(value) for value in values]

    def _write(self, arrays: list[Any]) -> None:
        session = self._session()
        for variable, array in zip(self.variables, arrays):
            if session is None:
                variable.assign(array)
            else:  # without a new operation: the graph may be closed
                session.run(variable.initializer, {variable.initializer.inputs[1]: array})

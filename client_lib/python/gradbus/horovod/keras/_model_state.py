"""ModelState: a model and an optimizer of Keras 3, on any of its backends, or of Keras 2 in commits."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from ..._errors import bad_argument
from ...keras._exchange import keras2_of, prepare
from ...keras._optimizer import number_of
from ...keras.callbacks import variables_of
from .._elastic import VariablesState


class ModelState(VariablesState):
    """A model, its optimizer with slot variables, and named values that a job can restore.

    ``optimizer``: of this model, distributed or not; None: that of ``model.compile()``. It is built here, so that all
    ranks have the same variables. ``backend`` changes nothing. Raises InvalidError if the model is not built, if
    there is no optimizer, and in graphs of tf.compat.v1.
    """

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.model = model
        self.optimizer = _checked(type(self).__name__, model, optimizer)
        self.backend = backend
        self._prepare()

    def _prepare(self) -> None:
        """Makes the variables of an optimizer that has made no step."""
        variables = self.model.trainable_variables
        if keras2_of(self.optimizer) is not None:
            prepare(self.optimizer, variables)
        elif not self.optimizer.built:
            self.optimizer.build(variables)

    def _variables(self) -> list[Any]:
        found = [*self.model.variables, *variables_of(self.optimizer)]
        if keras2_of(self.optimizer) is not None:
            from ...keras._keras2 import hidden_variables

            found += hidden_variables(self.optimizer, self.model.trainable_variables)
        return list({id(variable): variable for variable in found}.values())

    def _take_from_trainer(self) -> None:
        """With JAX the values are in the trainer while it runs. It takes them from the variables again then.

        After a step that failed they are deleted arrays, which cannot be read.
        """
        if hasattr(self.model, "jax_state_sync"):
            self.model.jax_state_sync()

    def _read(self) -> list[Any]:
        self._take_from_trainer()
        return [np.array(number_of(variable)) for variable in self._variables()]

    def _write(self, arrays: list[Any]) -> None:
        self._take_from_trainer()
        for variable, array in zip(self._variables(), arrays):
            variable.assign(array)


def _checked(name: str, model: Any, optimizer: Any) -> Any:
    """The optimizer to keep."""
    if not getattr(model, "built", True):
        raise bad_argument(f"{name}: the model is not built, so it has no variables", "call model.build(input_shape)")
    chosen = getattr(model, "optimizer", None) if optimizer is None else optimizer
    is_keras2 = keras2_of(chosen) is not None
    if not is_keras2 and not isinstance(chosen, keras.optimizers.Optimizer):
        raise bad_argument(
            f"{name}: the optimizer is a {type(chosen).__name__}, and none of Keras",
            "pass optimizer=, or call model.compile() before",
        )
    if is_keras2 and not _is_eager():
        raise bad_argument(
            f"{name}: graphs of tf.compat.v1 with Keras are not covered",
            "call tf.compat.v1.enable_eager_execution(), or use hvd.elastic.TensorFlowState",
        )
    return chosen


def _is_eager() -> bool:
    import tensorflow as tf

    return bool(tf.executing_eagerly())

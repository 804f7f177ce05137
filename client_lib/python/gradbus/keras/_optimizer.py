"""Optimizers of Keras that step on the gradients of all ranks, on any backend."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import os
import sys
import zipfile
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import h5py
import keras
import numpy as np

from .._errors import bad_argument
from .._gradients import broadcast_arrays, new_prefix, settings_of, unique_names
from .._layout import DEFAULT_BUCKET_BYTES
from .._ops import Average
from .._process_sets import ProcessSet, global_process_set
from ._exchange import OptimizerExchange, is_distributed, keras2_of, specialize


def DistributedOptimizer(  # used like a class, hence its name
    optimizer: Any,
    op: int = Average,
    compression: str | None = None,
    process_set: ProcessSet = global_process_set,
    gradient_predivide_factor: float = 1.0,
    sparse_as_dense: bool = False,
    bucket_bytes: int = DEFAULT_BUCKET_BYTES,
    local_layers: Sequence[Any] = (),
    scale_local_gradients: bool = True,
) -> Any:
    """Makes an optimizer of Keras step on the mean or sum of all ranks' gradients, and returns it.

    Args:
        optimizer: any keras.optimizers.Optimizer, or one of Keras 2 (tf_keras), also a legacy one. It keeps its state,
            its name and its configuration, so a saved model has the plain optimizer; load_model() makes it
            distributed again.
        op: gradbus.Average or gradbus.Sum.
        compression: a codec between nodes, such as "topk:ratio=0.01"; None: the policy of the job.
        process_set: the ranks that share this model.
        gradient_predivide_factor: Horovod's; it changes nothing.
        sparse_as_dense: tf.IndexedSlices become dense; else the rows of all ranks are joined.
        bucket_bytes: how much travels together.
        local_layers: layers whose variables are those of this rank; their gradients are not exchanged.
        scale_local_gradients: these are divided by the number of ranks.

    With ``gradient_accumulation_steps`` of Keras, the gradients of each pass are exchanged. All ranks make their
    optimizers in the same order. Raises InvalidError here, and MismatchError, PeerLostError or TimeoutError later.
    """
    is_keras2 = _is_of_keras2(optimizer)
    if not is_keras2 and not isinstance(optimizer, keras.optimizers.Optimizer):
        raise bad_argument(
            f"DistributedOptimizer: a {type(optimizer).__name__} is no optimizer of Keras",
            "pass keras.optimizers.SGD() or another",
        )
    settings = settings_of(
        "DistributedOptimizer", op, compression, process_set, gradient_predivide_factor, bucket_bytes)
    if is_distributed(optimizer):
        raise bad_argument("DistributedOptimizer: the optimizer is distributed already", "wrap it once")
    prefix = new_prefix("keras")
    options = (optimizer, prefix, settings, sparse_as_dense, list(local_layers), scale_local_gradients)
    if is_keras2:  # its gradients may come from elsewhere, so it sees no parameters
        from ._keras2 import Keras2Exchange, distribute

        distribute(Keras2Exchange(*options))
    else:
        exchange = OptimizerExchange(*options)
        exchange.settings = dataclasses.replace(settings, has_parameters=True)
        _distribute(exchange)
    return optimizer


def _is_of_keras2(optimizer: Any) -> bool:
    if keras2_of(optimizer) is None:
        return False
    from ._keras2 import is_optimizer

    return is_optimizer(optimizer)


def _distribute(step: OptimizerExchange) -> None:
    optimizer, kind = step.optimizer, type(step.optimizer)

    @functools.wraps(kind.apply)
    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        variables = self._trainable_variables if trainable_variables is None else list(trainable_variables)
        return step.step(lambda gradients: kind.apply(self, gradients, trainable_variables), grads, variables)

    @functools.wraps(kind.stateless_apply)
    def stateless_apply(self: Any, optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
        if step.on_shards(self._trainable_variables) or step.exchanged_as_parameters(self._trainable_variables):
            raise bad_argument(
                "a LossScaleOptimizer on JAX in a mode that exchanges parameters", "use mode sync, or bfloat16"
            )
        made = step.combined(grads, self._trainable_variables)
        return kind.stateless_apply(self, optimizer_variables, made, trainable_variables)

    def register_local_var(self: Any, variable: Any) -> None:
        """Makes a variable one of this rank, as those of local_layers."""
        step.local_variables.add(id(variable))

    def flush(self: Any) -> None:
        """In modes that exchange parameters or have them on shards: makes those of all ranks equal.

        All ranks call it, outside of fit().
        """
        step.flush(self._trainable_variables)

    def _restart_shards(self: Any) -> None:
        step.restart_shards(self._trainable_variables)

    members = {
        "apply": apply, "register_local_var": register_local_var, "flush": flush, "_restart_shards": _restart_shards,
        "_gradbus_distributed": True,
    }  # fmt: skip
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):  # its own does not call apply()
        members["stateless_apply"] = stateless_apply
    specialize(optimizer, members)


def load_model(filepath: Any, custom_objects: Any = None, compile: bool = True, **options: Any) -> Any:
    """load_model() of Keras, with a distributed optimizer. ``options``: those of DistributedOptimizer().

    A file of Keras 2 is loaded by Keras 2 if the program uses that, else by Keras 3.
    """
    chosen = (keras2() if is_file_of_keras2(filepath) else None) or keras
    model = chosen.models.load_model(filepath, custom_objects=custom_objects, compile=compile)
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and not is_distributed(optimizer):
        DistributedOptimizer(optimizer, **options)
    return model


def keras2() -> ModuleType | None:
    """Keras 2, if the program uses it."""
    if os.environ.get("TF_USE_LEGACY_KERAS", "").lower() in ("1", "true"):  # as TensorFlow reads it
        return importlib.import_module("tf_keras")
    return sys.modules.get("tf_keras")


def is_file_of_keras2(path: Any) -> bool:
    """Whether Keras 2 has saved it: the version is in the file. Only Keras 2 saves folders."""
    if os.path.isdir(path):
        return True
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                version = json.loads(archive.read("metadata.json"))["keras_version"]
        else:
            with h5py.File(path, "r") as file:
                version = file.attrs["keras_version"]
    except (OSError, KeyError, ValueError):
        return False  # Keras says what is wrong
    return str(version).startswith("2.")


def number_of(variable: Any) -> Any:
    """The value of a variable of any Keras, as an array."""
    is_of_keras3 = hasattr(variable, "path")
    return np.asarray(keras.ops.convert_to_numpy(variable)) if is_of_keras3 else np.asarray(variable)


def broadcast_variables(
    variables: Sequence[Any], root_rank: int = 0, process_set: ProcessSet = global_process_set
) -> None:
    """Assigns the root's values to variables of Keras, in few operations. The same variables on all ranks."""
    names = unique_names([str(getattr(variable, "path", None) or variable.name) for variable in variables])
    arrays = [number_of(variable) for variable in variables]
    received = broadcast_arrays("variables", list(zip(names, arrays)), root_rank, process_set)
    for variable, array in zip(variables, received):
        variable.assign(array)

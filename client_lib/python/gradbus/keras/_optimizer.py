"""Optimizers of Keras that step on the gradients of all ranks, on any backend."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from .._errors import bad_argument
from .._gradients import Settings, broadcast_arrays, exchange, new_prefix, settings_of, unique_names
from .._layout import DEFAULT_BUCKET_BYTES
from .._ops import Average
from .._process_sets import ProcessSet, global_process_set

# gradients, names, prefix, settings, sparse_as_dense -> gradients
Backend = Callable[[Sequence[Any], Sequence[str], str, Settings, bool], Sequence[Any]]


def _on_tensorflow(gradients: Any, names: Any, prefix: str, settings: Settings, sparse_as_dense: bool) -> Any:
    from ..tensorflow._exchange import exchange_gradients

    return exchange_gradients(gradients, names, prefix, settings, sparse_as_dense)


def _on_jax(gradients: Any, names: Any, prefix: str, settings: Settings, sparse_as_dense: bool) -> Any:
    from ..jax._optimizer import exchange_named

    return exchange_named(names, gradients, prefix, settings)


def _on_torch(gradients: Any, names: Any, prefix: str, settings: Settings, sparse_as_dense: bool) -> Any:
    import torch

    results = [gradient.detach().to("cpu", copy=True).contiguous() for gradient in gradients]
    halves = [result.view(torch.int16) if result.dtype == torch.bfloat16 else result for result in results]
    arrays = [
        half.numpy().view(_bfloat16()) if half is not result else result.numpy()
        for half, result in zip(halves, results)
    ]
    exchange(list(zip(names, arrays)), prefix, settings, arrays)
    return [result.to(gradient.device) for result, gradient in zip(results, gradients)]


def _bfloat16() -> Any:
    from .._gradients import bfloat16

    return bfloat16()


_BACKENDS: dict[str, Backend] = {"tensorflow": _on_tensorflow, "jax": _on_jax, "torch": _on_torch}


def exchanged(
    gradients: Sequence[Any], variables: Sequence[Any], prefix: str, settings: Settings, sparse_as_dense: bool
) -> list[Any]:
    """The gradients of all ranks combined, by Keras's backend; None stays None."""
    backend = _BACKENDS.get(keras.backend.backend())
    if backend is None:
        raise bad_argument(
            f"Keras uses the backend {keras.backend.backend()}", f"set KERAS_BACKEND to {', '.join(_BACKENDS)}"
        )
    names = unique_names([str(variable.path) for variable in variables])
    present = [index for index, gradient in enumerate(gradients) if gradient is not None]
    results = list(gradients)
    chosen = [names[index] for index in present]
    made = backend([gradients[index] for index in present], chosen, prefix, settings, sparse_as_dense)
    for index, gradient in zip(present, made):
        results[index] = gradient
    return results


def _with_finite_of(scaler: Any, local: Sequence[Any], gradients: list[Any]) -> list[Any]:
    """The gradients to exchange; one of them is NaN where a local gradient is not finite.

    Then loss scaling skips the step on all ranks, and the shared weights stay equal.
    """
    present = [number for number, gradient in enumerate(gradients) if gradient is not None]
    if not present or all(gradient is None for gradient in local):
        return gradients
    chosen = gradients[present[-1]]
    mark = keras.ops.where(scaler.check_finite(local), 0.0, float("nan"))
    gradients[present[-1]] = keras.ops.add(chosen, keras.ops.cast(mark, chosen.dtype))
    return gradients


def _refuse_scaler_around(optimizer: Any) -> None:
    """Loss scaling that sees one rank's gradients skips the exchange where they overflow, and ranks go apart."""
    kind, frame = keras.optimizers.LossScaleOptimizer, sys._getframe(1)
    while frame is not None:
        caller = frame.f_locals.get("self") if frame.f_globals.get("__name__") == kind.__module__ else None
        if isinstance(caller, kind) and caller is not optimizer and not is_distributed(caller):
            raise bad_argument(
                "a distributed optimizer is inside a LossScaleOptimizer, which skips steps on one rank alone",
                "pass gradbus.DistributedOptimizer(keras.optimizers.LossScaleOptimizer(optimizer)) to compile()",
            )
        frame = frame.f_back  # type: ignore[assignment]


def scaled(gradient: Any, factor: float) -> Any:
    """A gradient times a factor; of tf.IndexedSlices the values. None stays None."""
    if gradient is None or factor == 1:
        return gradient
    if type(gradient).__name__ == "IndexedSlices":
        return type(gradient)(gradient.values * factor, gradient.indices, gradient.dense_shape)
    return gradient * factor


def specialize(optimizer: Any, members: dict[str, Any]) -> None:
    """Gives one optimizer members of its own. Keras saves it under the name of its class, as before."""
    kind = type(optimizer)
    made = type(kind.__name__, (kind,), {"__module__": kind.__module__, "__doc__": kind.__doc__, **members})
    registered = keras.saving.get_registered_name(kind)
    loaded = keras.saving.get_registered_object(registered)
    if loaded is not None and ">" in registered:
        package, _, name = registered.rpartition(">")
        for one in (made, loaded):  # Keras loads the last one
            keras.saving.register_keras_serializable(package, name)(one)
    optimizer.__class__ = made


@dataclasses.dataclass
class _Exchange:
    """How one optimizer combines its gradients with those of other ranks."""

    optimizer: Any
    prefix: str
    settings: Settings
    sparse_as_dense: bool
    local_layers: list[Any]
    scale_local_gradients: bool
    local_variables: set[int] = dataclasses.field(default_factory=set)  # by id

    def combined(self, gradients: Any, variables: Sequence[Any]) -> list[Any]:
        """The gradients of all ranks; for local variables this rank's."""
        _refuse_scaler_around(self.optimizer)
        grads = list(gradients)
        if len(grads) != len(variables):
            return grads  # Keras says what is wrong
        weights = (weight for layer in self.local_layers for weight in layer.trainable_weights)
        local = self.local_variables | set(map(id, weights))
        shared = [number for number, variable in enumerate(variables) if id(variable) not in local]
        mine = [grads[number] for number in shared]
        if isinstance(self.optimizer, keras.optimizers.LossScaleOptimizer):
            own = [gradient for gradient, variable in zip(grads, variables) if id(variable) in local]
            mine = _with_finite_of(self.optimizer, own, mine)
        of_shared = [variables[number] for number in shared]
        made = dict(zip(shared, exchanged(mine, of_shared, self.prefix, self.settings, self.sparse_as_dense)))
        factor = 1 / len(self.settings.process_set.ranks) if self.scale_local_gradients else 1
        return [
            made[number] if number in made else scaled(gradient, factor) for number, gradient in enumerate(grads)
        ]


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
    """Makes an optimizer of Keras 3 step on the mean or sum of all ranks' gradients, and returns it.

    Args:
        optimizer: any keras.optimizers.Optimizer. It keeps its state, its name and its configuration, so a saved model
            has the plain optimizer; load_model() makes it distributed again.
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
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise bad_argument(
            f"DistributedOptimizer: a {type(optimizer).__name__} is no optimizer of Keras 3",
            "pass keras.optimizers.SGD() or another",
        )
    settings = settings_of(
        "DistributedOptimizer", op, compression, process_set, gradient_predivide_factor, bucket_bytes)
    if is_distributed(optimizer):
        raise bad_argument("DistributedOptimizer: the optimizer is distributed already", "wrap it once")
    prefix = new_prefix("keras")
    kind = type(optimizer)
    step = _Exchange(optimizer, prefix, settings, sparse_as_dense, list(local_layers), scale_local_gradients)

    @functools.wraps(kind.apply)
    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        variables = self._trainable_variables if trainable_variables is None else list(trainable_variables)
        return kind.apply(self, step.combined(grads, variables), trainable_variables)

    @functools.wraps(kind.stateless_apply)
    def stateless_apply(self: Any, optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
        made = step.combined(grads, self._trainable_variables)
        return kind.stateless_apply(self, optimizer_variables, made, trainable_variables)

    def register_local_var(self: Any, variable: Any) -> None:
        """Makes a variable one of this rank, as those of local_layers."""
        step.local_variables.add(id(variable))

    members = {"apply": apply, "register_local_var": register_local_var, "_gradbus_distributed": True}
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):  # its own does not call apply()
        members["stateless_apply"] = stateless_apply
    specialize(optimizer, members)
    return optimizer


def is_distributed(optimizer: Any) -> bool:
    """It was made by DistributedOptimizer()."""
    return getattr(type(optimizer), "_gradbus_distributed", False)


def load_model(filepath: Any, custom_objects: Any = None, compile: bool = True, **options: Any) -> Any:
    """keras.models.load_model(), with a distributed optimizer. ``options``: those of DistributedOptimizer()."""
    model = keras.models.load_model(filepath, custom_objects=custom_objects, compile=compile)
    if getattr(model, "optimizer", None) is not None:
        DistributedOptimizer(model.optimizer, **options)
    return model


def broadcast_variables(
    variables: Sequence[Any], root_rank: int = 0, process_set: ProcessSet = global_process_set
) -> None:
    """Assigns the root's values to variables of Keras, in few operations. The same variables on all ranks."""
    names = unique_names([str(variable.path) for variable in variables])
    arrays = [np.asarray(keras.ops.convert_to_numpy(variable)) for variable in variables]
    received = broadcast_arrays("variables", list(zip(names, arrays)), root_rank, process_set)
    for variable, array in zip(variables, received):
        variable.assign(array)

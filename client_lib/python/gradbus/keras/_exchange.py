"""The exchange of an optimizer's gradients, on any backend of Keras, and optimizers with members of their own."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import keras
import numpy as np

from .._errors import GradbusError, bad_argument
from .._gradients import Gradient, Settings, exchange, unique_names
from .._modes.array_shards import flush_shards, parameters_on_shards, restart_shards
from .._modes.arrays import after_step, before_step, flush, local_numbers
from .._process_sets import session_of
from . import _shards

# gradients, names, prefix, settings, sparse_as_dense -> gradients
Backend = Callable[[Sequence[Any], Sequence[str], str, Settings, bool], Sequence[Any]]


def _on_tensorflow(gradients: Any, names: Any, prefix: str, settings: Settings, sparse_as_dense: bool) -> Any:
    from ..tensorflow._exchange import exchange_gradients

    return exchange_gradients(gradients, names, prefix, settings, sparse_as_dense)


def _on_jax(gradients: Any, names: Any, prefix: str, settings: Settings, sparse_as_dense: bool) -> Any:
    from ..jax._optimizer import exchange_named

    return exchange_named(names, gradients, prefix, settings)


def _on_torch(gradients: Any, names: Any, prefix: str, settings: Settings, sparse_as_dense: bool) -> Any:
    return _run_on_torch(exchange, gradients, names, prefix, settings)


def _run_on_torch(what: Any, tensors: Any, names: Any, prefix: str, settings: Settings) -> Any:
    """``what``: exchange(), or a function of arrays.py with the same arguments."""
    import torch

    results = [tensor.detach().to("cpu", copy=True).contiguous() for tensor in tensors]
    halves = [result.view(torch.int16) if result.dtype == torch.bfloat16 else result for result in results]
    arrays = [
        half.numpy().view(_bfloat16()) if half is not result else result.numpy()
        for half, result in zip(halves, results)
    ]
    what(list(zip(names, arrays)), prefix, settings, arrays)
    return [result.to(tensor.device) for result, tensor in zip(results, tensors)]


def _bfloat16() -> Any:
    from .._gradients import bfloat16

    return bfloat16()


_BACKENDS: dict[str, Backend] = {"tensorflow": _on_tensorflow, "jax": _on_jax, "torch": _on_torch}


def _parameters_by_backend(
    is_after: bool, values: list[Any], names: list[str], prefix: str, settings: Settings, behind: Sequence[Any]
) -> Any:
    """What arrays.before_step() or after_step() makes of them. JAX performs the call that made ``behind`` first."""
    if keras.backend.backend() == "tensorflow":
        from ..tensorflow._exchange import exchange_parameters

        return exchange_parameters(is_after, values, names, prefix, settings)
    if keras.backend.backend() == "jax":
        from ..jax._optimizer import parameters_named

        return parameters_named(is_after, names, values, prefix, settings, behind)
    return _run_on_torch(after_step if is_after else before_step, values, names, prefix, settings)


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


def is_inside(kind: type, optimizer: Any) -> bool:
    """Whether a plain optimizer of this kind, which scales losses, is calling this one."""
    frame = sys._getframe(1)
    while frame is not None:
        caller = frame.f_locals.get("self") if frame.f_globals.get("__name__") == kind.__module__ else None
        if isinstance(caller, kind) and caller is not optimizer and not is_distributed(caller):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def inside_scaler() -> GradbusError:
    """Loss scaling that sees one rank's gradients skips the exchange where they overflow, and ranks go apart."""
    return bad_argument(
        "a distributed optimizer is inside a LossScaleOptimizer, which skips steps on one rank alone",
        "pass gradbus.DistributedOptimizer(keras.optimizers.LossScaleOptimizer(optimizer)) to compile()",
    )


def scaled(gradient: Any, factor: float) -> Any:
    """A gradient times a factor; of tf.IndexedSlices the values. None stays None."""
    if gradient is None or factor == 1:
        return gradient
    if type(gradient).__name__ == "IndexedSlices":
        return type(gradient)(gradient.values * factor, gradient.indices, gradient.dense_shape)
    return gradient * factor


def _dense(gradient: Any) -> Any:
    """A gradient that is no tf.IndexedSlices."""
    if type(gradient).__name__ != "IndexedSlices":
        return gradient
    import tensorflow as tf

    return tf.convert_to_tensor(gradient)


def _arrays_of(variables: Sequence[Any]) -> list[Any]:
    return [np.array(keras.ops.convert_to_numpy(variable)) for variable in variables]


def is_distributed(optimizer: Any) -> bool:
    """It was made by DistributedOptimizer()."""
    return getattr(type(optimizer), "_gradbus_distributed", False)


def keras2_of(optimizer: Any) -> ModuleType | None:
    """Keras 2 (tf_keras, which is tf.keras with TF_USE_LEGACY_KERAS=1) if it has made the optimizer."""
    is_one = any(kind.__module__.partition(".")[0] == "tf_keras" for kind in type(optimizer).__mro__)
    return sys.modules["tf_keras"] if is_one else None


def prepare(optimizer: Any, variables: Sequence[Any]) -> None:
    """Makes the variables of an optimizer of Keras 2."""
    build = getattr(optimizer, "build", None) or optimizer._create_all_weights  # of legacy ones
    build(list(variables))


def specialize(optimizer: Any, members: dict[str, Any]) -> None:
    """Gives one optimizer members of its own. Keras saves it under the name of its class, as before."""
    saving = (keras2_of(optimizer) or keras).saving
    kind = type(optimizer)
    made = type(kind.__name__, (kind,), {"__module__": kind.__module__, "__doc__": kind.__doc__, **members})
    registered = saving.get_registered_name(kind)
    loaded = saving.get_registered_object(registered)
    if loaded is not None and ">" in registered:
        package, _, name = registered.rpartition(">")
        for one in (made, loaded):  # Keras loads the last one
            saving.register_keras_serializable(package, name)(one)
    object.__setattr__(optimizer, "__class__", made)


@dataclasses.dataclass
class OptimizerExchange:
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
        grads = list(gradients)
        if len(grads) != len(variables):
            return grads  # Keras says what is wrong
        shared = self._shared(variables)
        own = [gradient for number, gradient in enumerate(grads) if number not in shared]
        mine = self.checked([grads[number] for number in shared], own)
        made = dict(zip(shared, self.exchanged(mine, [variables[number] for number in shared])))
        size = session_of(self.settings.process_set, "DistributedOptimizer").size
        factor = 1 / size if self.scale_local_gradients else 1
        return [
            made[number] if number in made else scaled(gradient, factor) for number, gradient in enumerate(grads)
        ]

    def _shared(self, variables: Sequence[Any]) -> list[int]:
        """Numbers of those that are not of this rank alone."""
        weights = (weight for layer in self.local_layers for weight in layer.trainable_weights)
        own = self.local_variables | set(map(id, weights))
        return [number for number, variable in enumerate(variables) if id(variable) not in own]

    def _described(self, variables: Sequence[Any]) -> tuple[list[int], list[str], list[Gradient]]:
        """Of those that are not of this rank alone: the numbers, the names of their gradients, and the parameters."""
        shared = self._shared(variables)
        names = unique_names([str(variables[number].path) for number in shared])
        dtype_of = keras.backend.standardize_dtype
        described = [
            Gradient(name, tuple(variables[number].shape), dtype_of(variables[number].dtype))
            for number, name in zip(shared, names)
        ]
        return shared, names, described

    def exchanged_as_parameters(self, variables: Sequence[Any]) -> dict[str, int]:
        """Numbers of those that ranks exchange, by the names that their gradients have."""
        shared, names, described = self._described(variables)
        chosen = local_numbers(described, self.prefix, self.settings)
        return {names[number]: shared[number] for number in chosen}

    def on_shards(self, variables: Sequence[Any]) -> dict[str, int]:
        """Numbers of those that shards hold, by the names that their gradients have. Raises InvalidError."""
        shared, names, described = self._described(variables)
        on_shards = parameters_on_shards(described, self.prefix, self.settings)
        if on_shards:
            _shards.check(self.optimizer, [variables[shared[number]] for number in on_shards], on_shards.values())
        return {names[number]: shared[number] for number in on_shards}

    def step(self, apply: Callable[[list[Any]], Any], gradients: Any, variables: Sequence[Any]) -> Any:
        """``apply``: that of Keras. It gets the gradients of all ranks, and its result is returned."""
        grads = list(gradients)
        if len(grads) != len(variables):
            return apply(grads)  # Keras says what is wrong
        moving, on_shards = self.exchanged_as_parameters(variables), self.on_shards(variables)
        for number in (*moving.values(), *on_shards.values()):
            grads[number] = _dense(grads[number])  # rows would be joined with those of other ranks
        self._move(moving, variables, is_after=False)
        combined = self.combined(grads, variables)
        chosen = [variables[number] for number in on_shards.values()]
        made: list[Any] = []
        if on_shards:  # before Keras steps: its count of steps decides the learning rate
            own = [combined[number] for number in on_shards.values()]
            made = _shards.stepped(self.optimizer, own, chosen, list(on_shards), self.prefix, self.settings)
        result = apply(combined)
        for variable, value in zip(chosen, made):
            variable.assign(value)
        self._move(moving, variables, is_after=True, behind=made)
        return result

    def _move(
        self, moving: dict[str, int], variables: Sequence[Any], is_after: bool, behind: Sequence[Any] = ()
    ) -> None:
        """Exchanges parameters, before and after each step."""
        if not moving:
            return
        chosen = [variables[number] for number in moving.values()]
        values = [keras.ops.convert_to_tensor(variable) for variable in chosen]
        made = _parameters_by_backend(is_after, values, list(moving), self.prefix, self.settings, behind)
        for variable, value in zip(chosen, made):
            variable.assign(value)

    def flush(self, variables: Sequence[Any]) -> None:
        """Outside of compiled functions."""
        for numbers, what in (
            (self.exchanged_as_parameters(variables), flush),
            (self.on_shards(variables), flush_shards),
        ):
            chosen = [variables[number] for number in numbers.values()]
            arrays = _arrays_of(chosen)
            if chosen:
                what(list(zip(numbers, arrays)), self.prefix, self.settings, arrays)
            for variable, array in zip(chosen, arrays):
                variable.assign(array)

    def restart_shards(self, variables: Sequence[Any]) -> None:
        """The variables, the same on all ranks, are those of the shards, too. Outside of compiled functions."""
        on_shards = self.on_shards(variables)
        if on_shards:
            arrays = _arrays_of([variables[number] for number in on_shards.values()])
            restart_shards(list(zip(on_shards, arrays)), self.prefix, self.settings)

    def checked(self, gradients: list[Any], local: list[Any]) -> list[Any]:
        """The gradients to exchange. Raises InvalidError where loss scaling would make ranks go apart."""
        kind = keras.optimizers.LossScaleOptimizer
        if is_inside(kind, self.optimizer):
            raise inside_scaler()
        is_scaling = isinstance(self.optimizer, kind)
        return _with_finite_of(self.optimizer, local, gradients) if is_scaling else gradients

    def exchanged(self, gradients: list[Any], variables: list[Any]) -> list[Any]:
        """Those of all ranks, by the backend."""
        return exchanged(gradients, variables, self.prefix, self.settings, self.sparse_as_dense)

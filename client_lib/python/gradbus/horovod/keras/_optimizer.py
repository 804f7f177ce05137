"""DistributedOptimizer and load_model with Horovod's arguments, for Keras 3 on any backend and for Keras 2."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import keras

from ..._errors import bad_argument
from ..._gradients import new_prefix
from ..._ops import Average, whole_number
from ..._process_sets import ProcessSet, global_process_set
from ...keras import DistributedOptimizer as make_distributed
from ...keras import load_model as load_distributed
from ...keras._exchange import keras2_of, scaled, specialize
from ...keras._optimizer import keras2
from .._arguments import codec_of, mean_or_sum, number_of_groups
from .compression import NoneCompressor

_VERB = "DistributedOptimizer"


def distributed(
    optimizer: Any,
    codec: str | None,
    sparse_as_dense: bool,
    op: int,
    predivide: float,
    num_groups: int,
    groups: Any,
    process_set: ProcessSet = global_process_set,
    passes: int = 1,
    average_passes: bool = False,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """The optimizer, which steps on all ranks' gradients. On ranks outside of the process set it steps alone."""
    number_of_groups(_VERB, num_groups, groups, object)
    chosen = mean_or_sum(_VERB, op, predivide)
    number = whole_number(passes)
    if number is None or number < 1:
        raise bad_argument(f"{_VERB}: backward_passes_per_step={passes!r}", "pass a whole number, at least 1")
    if not process_set.included():
        new_prefix("keras")  # so that the next optimizer has the same number on all ranks
        specialize(optimizer, {"register_local_var": lambda self, variable: None})
        return optimizer
    layers = [] if local_layers is None else local_layers
    made = make_distributed(
        optimizer, chosen, codec, process_set, sparse_as_dense=sparse_as_dense,
        local_layers=list(layers) if isinstance(layers, Iterable) else [layers],
        scale_local_gradients=scale_local_gradients,
    )  # fmt: skip
    if number > 1 and keras2_of(made) is not None:
        from ...keras._keras2 import accumulate

        accumulate(made, number, average_passes)
    elif number > 1:
        _accumulate(made, number, average_passes)
    return made


def _accumulate(optimizer: Any, passes: int, average: bool) -> None:
    """Keras adds the gradients of several passes up and divides them. Horovod divides them only if asked."""
    inner = optimizer.inner_optimizer if isinstance(optimizer, keras.optimizers.LossScaleOptimizer) else optimizer
    if inner.built or inner.gradient_accumulation_steps:
        raise bad_argument(
            f"{_VERB}: backward_passes_per_step={passes} comes too late for an optimizer that is in use",
            "wrap the optimizer before model.compile(), without gradient_accumulation_steps",
        )
    inner.gradient_accumulation_steps = passes
    kind = type(inner)

    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        return kind.apply(self, [scaled(gradient, passes) for gradient in grads], trainable_variables)

    def get_config(self: Any) -> Any:
        return {**kind.get_config(self), "gradient_accumulation_steps": None}

    specialize(inner, {"get_config": get_config} if average else {"get_config": get_config, "apply": apply})
    specialize(optimizer, _storage(inner, passes))


def _storage(inner: Any, passes: int) -> dict[str, Any]:
    """A saved optimizer is one without accumulation, whose iterations are steps, not passes."""

    def saved(optimizer: Any) -> list[Any]:
        sums = {id(variable) for variable in getattr(inner, "_accumulated_gradients", ())}
        return [variable for variable in optimizer.variables if id(variable) not in sums]

    def save_own_variables(self: Any, store: Any) -> None:
        for index, variable in enumerate(saved(self)):
            array = keras.ops.convert_to_numpy(variable)
            store[str(index)] = array // passes if variable is inner._iterations else array

    def load_own_variables(self: Any, store: Any) -> None:
        variables = saved(self)
        if len(store.keys()) != len(variables):
            warnings.warn(f"{_VERB}: the file has {len(store.keys())} variables, not {len(variables)}", stacklevel=2)
            return
        for index, variable in enumerate(variables):
            variable.assign(store[str(index)] * (passes if variable is inner._iterations else 1))
        for variable in getattr(inner, "_accumulated_gradients", ()):
            variable.assign(keras.ops.zeros(variable.shape, variable.dtype))

    return {"save_own_variables": save_own_variables, "load_own_variables": load_own_variables}


def DistributedOptimizer(  # used like a class, hence its name
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = NoneCompressor,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    num_groups: int = 0,
    groups: Any = None,
) -> Any:
    """Makes an optimizer of Keras step on the mean or sum of all ranks' gradients, and returns it.

    Args:
        compression: hvd.Compression.none or fp16, or a text of Gradbus. It applies between nodes only.
        sparse_as_dense: tf.IndexedSlices become dense; else the rows of all ranks are joined.
        op: hvd.Average or hvd.Sum.
        name, gradient_predivide_factor, num_groups, groups, devices: they change nothing.

    Raises InvalidError for other operations and for own compressors, and what gradbus.keras raises.
    """
    codec = codec_of(_VERB, compression)
    return distributed(optimizer, codec, sparse_as_dense, op, gradient_predivide_factor, num_groups, groups)


def PartialDistributedOptimizer(  # used like a class, hence its name
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = NoneCompressor,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """DistributedOptimizer() with a process set, local accumulation, and layers that each rank trains for itself.

    ``local_layers``: one layer or several. ``scale_local_gradients``: theirs are divided by the number of ranks.
    """
    codec = codec_of(_VERB, compression)
    return distributed(
        optimizer, codec, sparse_as_dense, op, gradient_predivide_factor, 0, groups, process_set,
        backward_passes_per_step, average_aggregated_gradients, local_layers, scale_local_gradients,
    )  # fmt: skip


def load_model(
    filepath: Any,
    custom_optimizers: Sequence[Any] | None = None,
    custom_objects: Any = None,
    compression: Any = NoneCompressor,
    legacy_opts: bool = False,
) -> Any:
    """A saved model with a distributed optimizer and its state.

    ``custom_optimizers``: classes of optimizers that Keras does not know. ``legacy_opts``: the optimizer is a legacy
    one of Keras 2. Raises InvalidError if the program does not use Keras 2.
    """
    if legacy_opts and keras2() is None:
        raise bad_argument("load_model: legacy_opts needs Keras 2", "set TF_USE_LEGACY_KERAS=1, or import tf_keras")
    objects = {kind.__name__: kind for kind in custom_optimizers or ()}
    codec = codec_of("load_model", compression)
    return load_distributed(filepath, {**objects, **(custom_objects or {})}, compression=codec)

"""The tape and the optimizers with Horovod's arguments."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from ..._errors import bad_argument
from ..._gradients import new_prefix, settings_of
from ..._ops import Average
from ..._process_sets import ProcessSet, global_process_set, session_of
from ...tensorflow import DistributedOptimizer as make_distributed
from ...tensorflow._gradients import Tape, divided, tape_name
from .._arguments import codec_of, mean_or_sum, number_of_groups
from ..keras._optimizer import distributed as distributed_of_keras
from .compression import NoneCompressor

# All tapes with the same arguments have one name, and Horovod's arguments have none. Names are free in a new job.
_RECOVERY = "call hvd.shutdown() and hvd.init(), then broadcast the parameters"


class _Tape(Tape):
    """Variables that were registered as local keep this rank's gradients, divided by the number of ranks."""

    def gradient(
        self, target: Any, sources: Any, output_gradients: Any = None, use_generic_names: bool = False, **options: Any
    ) -> Any:
        """As tf.GradientTape.gradient(), combined over all ranks."""
        return super().gradient(target, sources, output_gradients, **options)

    def register_local_source(self, source: Any) -> None:
        """The gradients of this variable are not exchanged."""
        self.__dict__.setdefault("_local", set()).add(id(source))

    def combined(self, gradients: list[Any], sources: list[Any]) -> list[Any]:
        """Of all ranks, except those of local variables."""
        _, settings, _ = self._gradbus
        if not settings.process_set.included():
            return gradients
        local = self.__dict__.get("_local", ())
        shared = [index for index, source in enumerate(sources) if id(source) not in local]
        made = super().combined([gradients[index] for index in shared], [sources[index] for index in shared])
        combined = dict(zip(shared, made))
        factor = session_of(settings.process_set, "gradient").size if self._scales_local else 1
        return [
            combined[index] if index in combined else divided(gradient, factor)
            for index, gradient in enumerate(gradients)
        ]


def DistributedGradientTape(  # used like a class, hence its name
    gradtape: Any,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = NoneCompressor,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """A tape whose gradient() returns the mean or sum of all ranks' gradients.

    Args:
        compression: hvd.Compression.none or fp16, or a text of Gradbus. It applies between nodes only.
        sparse_as_dense: tf.IndexedSlices become dense; else the rows of all ranks are joined.
        op: hvd.Average or hvd.Sum.
        gradient_predivide_factor, num_groups, groups, devices: they change nothing.
        process_set: the ranks that share this model. On other ranks gradients stay as they are.
        scale_local_gradients: see register_local_source() of the tape.
    """
    verb = "DistributedGradientTape"
    if not isinstance(gradtape, tf.GradientTape):
        raise bad_argument(f"{verb}: a {type(gradtape).__name__} is no tape", "pass a tf.GradientTape")
    number_of_groups(verb, num_groups, groups, object)
    chosen = mean_or_sum(verb, op, gradient_predivide_factor)
    settings = settings_of(verb, chosen, codec_of(verb, compression), process_set)
    settings = dataclasses.replace(settings, recovery=_RECOVERY)
    tape = _Tape(gradtape, tape_name(settings), settings, sparse_as_dense)
    tape._scales_local = scale_local_gradients
    return tape


def PartialDistributedGradientTape(  # used like a class, hence its name
    gradtape: Any,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = NoneCompressor,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """DistributedGradientTape() that leaves the gradients of these layers alone."""
    tape = DistributedGradientTape(
        gradtape, device_dense, device_sparse, compression, sparse_as_dense, op, gradient_predivide_factor,
        num_groups, groups, process_set, scale_local_gradients,
    )  # fmt: skip
    layers = [] if local_layers is None else local_layers
    for layer in layers if isinstance(layers, Iterable) else [layers]:
        for variable in layer.trainable_weights:
            tape.register_local_source(variable)
    return tape


def DistributedOptimizer(  # used like a class, hence its name
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = NoneCompressor,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Makes an optimizer of tf.compat.v1.train or of Keras step on all ranks' gradients, and returns it.

    Arguments: those of gradbus.horovod.tensorflow.keras.DistributedOptimizer().
    """
    verb = "DistributedOptimizer"
    codec = codec_of(verb, compression)
    if not isinstance(optimizer, tf.compat.v1.train.Optimizer):
        return distributed_of_keras(
            optimizer, codec, sparse_as_dense, op, gradient_predivide_factor, num_groups, groups, process_set,
            backward_passes_per_step, average_aggregated_gradients, None, scale_local_gradients,
        )  # fmt: skip
    number_of_groups(verb, num_groups, groups, object)
    chosen = mean_or_sum(verb, op, gradient_predivide_factor)
    if backward_passes_per_step != 1:
        raise bad_argument(
            f"{verb}: backward_passes_per_step={backward_passes_per_step!r} needs an optimizer of Keras",
            "add gradients up in the graph, or pass one of keras.optimizers",
        )
    if not process_set.included():
        new_prefix("v1")  # so that the next optimizer has the same number on all ranks
        optimizer.register_local_var = lambda variable: None
        return optimizer
    return make_distributed(
        optimizer, chosen, codec, process_set, sparse_as_dense=sparse_as_dense,
        scale_local_gradients=scale_local_gradients,
    )  # fmt: skip

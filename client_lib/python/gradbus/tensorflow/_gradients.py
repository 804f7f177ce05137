"""The tape and the optimizers that exchange gradients."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from .._errors import bad_argument
from .._gradients import Settings, new_prefix, settings_of
from .._layout import DEFAULT_BUCKET_BYTES
from .._ops import Average
from .._process_sets import ProcessSet, global_process_set
from ._exchange import exchange_gradients, names_of


class Tape(tf.GradientTape):  # type: ignore[misc,unused-ignore]
    """A tape whose gradient() exchanges. It takes the place of the one that it was made of."""

    def __init__(self, tape: Any, prefix: str, settings: Settings, sparse_as_dense: bool) -> None:
        self.__dict__.update(tape.__dict__)
        self._gradbus = (prefix, settings, sparse_as_dense)

    def gradient(self, target: Any, sources: Any, *arguments: Any, **options: Any) -> Any:
        """As tf.GradientTape.gradient(), combined over all ranks."""
        gradients = super().gradient(target, sources, *arguments, **options)
        flat = tf.nest.flatten(gradients, expand_composites=False)
        return tf.nest.pack_sequence_as(sources, self.combined(flat, tf.nest.flatten(sources)))

    def combined(self, gradients: list[Any], sources: list[Any]) -> list[Any]:
        """The gradients of all ranks."""
        prefix, settings, sparse_as_dense = self._gradbus
        return exchange_gradients(gradients, names_of(sources), prefix, settings, sparse_as_dense)


def tape_name(settings: Settings) -> str:
    """Of a tape without a name: tapes that combine the same gradients in different ways must not share memory."""
    return "/".join(filter(None, ["tape", settings.op.name.lower(), settings.compression]))


def DistributedGradientTape(  # used like a class, hence its name
    tape: Any,
    op: int = Average,
    compression: str | None = None,
    process_set: ProcessSet = global_process_set,
    gradient_predivide_factor: float = 1.0,
    sparse_as_dense: bool = False,
    bucket_bytes: int = DEFAULT_BUCKET_BYTES,
    name: str | None = None,
) -> Any:
    """A tape like ``tape`` whose gradient() returns the mean or sum of all ranks' gradients.

    Args:
        tape: a tf.GradientTape. One around each step is fine: it costs no new registration.
        op, compression, process_set, bucket_bytes: as in gradbus.keras.DistributedOptimizer().
        sparse_as_dense: tf.IndexedSlices become dense; else the rows of all ranks are joined.
        name: of this set of gradients, where a program has several tapes; the same on all ranks.
    """
    if not isinstance(tape, tf.GradientTape):
        raise bad_argument(f"DistributedGradientTape: a {type(tape).__name__} is no tape", "pass a tf.GradientTape")
    settings = settings_of(
        "DistributedGradientTape", op, compression, process_set, gradient_predivide_factor, bucket_bytes)
    return Tape(tape, name or tape_name(settings), settings, sparse_as_dense)


def DistributedOptimizer(  # used like a class, hence its name
    optimizer: Any,
    op: int = Average,
    compression: str | None = None,
    process_set: ProcessSet = global_process_set,
    gradient_predivide_factor: float = 1.0,
    sparse_as_dense: bool = False,
    bucket_bytes: int = DEFAULT_BUCKET_BYTES,
) -> Any:
    """Makes an optimizer of Keras 3 or of tf.compat.v1.train step on the mean or sum of all ranks' gradients.

    Arguments and results: gradbus.keras.DistributedOptimizer().
    """
    options = (op, compression, process_set, gradient_predivide_factor)
    if not isinstance(optimizer, tf.compat.v1.train.Optimizer):
        from ..keras import DistributedOptimizer as of_keras

        return of_keras(optimizer, *options, sparse_as_dense=sparse_as_dense, bucket_bytes=bucket_bytes)
    settings = settings_of("DistributedOptimizer", *options, bucket_bytes)
    prefix = new_prefix("v1")
    before = optimizer.compute_gradients

    def compute_gradients(*arguments: Any, **keywords: Any) -> Any:
        pairs = before(*arguments, **keywords)
        variables = [variable for _, variable in pairs]
        gradients = [gradient for gradient, _ in pairs]
        made = exchange_gradients(gradients, names_of(variables), prefix, settings, sparse_as_dense)
        return list(zip(made, variables))

    optimizer.compute_gradients = compute_gradients
    return optimizer

"""The tape and the optimizers that exchange gradients."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from .._errors import bad_argument
from .._gradients import Settings, new_prefix, settings_of
from .._layout import DEFAULT_BUCKET_BYTES
from .._ops import Average
from .._process_sets import ProcessSet, global_process_set, session_of
from ._exchange import exchange_gradients, mark_exchanged, names_of

_RECOVERY = "broadcast the parameters and pass DistributedGradientTape(name=...) a new name"


class Tape(tf.GradientTape):  # type: ignore[misc,unused-ignore]
    """A tape whose gradient() exchanges. It takes the place of the one that it was made of."""

    def __init__(self, tape: Any, prefix: str, settings: Settings, sparse_as_dense: bool) -> None:
        self.__dict__.update(tape.__dict__)
        self._gradbus = (prefix, settings, sparse_as_dense)

    def gradient(self, target: Any, sources: Any, *arguments: Any, **options: Any) -> Any:
        """As tf.GradientTape.gradient(), combined over all ranks."""
        gradients = super().gradient(target, sources, *arguments, **options)
        flat = tf.nest.flatten(gradients, expand_composites=False)
        made = mark_exchanged(self.combined(flat, tf.nest.flatten(sources)))
        return tf.nest.pack_sequence_as(sources, made)

    def combined(self, gradients: list[Any], sources: list[Any]) -> list[Any]:
        """The gradients of all ranks."""
        prefix, settings, sparse_as_dense = self._gradbus
        return exchange_gradients(gradients, names_of(sources), prefix, settings, sparse_as_dense)


def tape_name(settings: Settings) -> str:
    """Of a tape without a name: tapes that combine the same gradients in different ways must not share memory."""
    return "/".join(filter(None, ["tape", settings.op.name.lower(), settings.compression]))


def divided(gradient: Any, factor: int) -> Any:
    """A gradient of a local variable; of tf.IndexedSlices the values are divided. None stays None."""
    if gradient is None:
        return None
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(gradient.values / factor, gradient.indices, gradient.dense_shape)
    return gradient / factor


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
    settings = dataclasses.replace(settings, recovery=_RECOVERY)
    return Tape(tape, name or tape_name(settings), settings, sparse_as_dense)


def DistributedOptimizer(  # used like a class, hence its name
    optimizer: Any,
    op: int = Average,
    compression: str | None = None,
    process_set: ProcessSet = global_process_set,
    gradient_predivide_factor: float = 1.0,
    sparse_as_dense: bool = False,
    bucket_bytes: int = DEFAULT_BUCKET_BYTES,
    scale_local_gradients: bool = True,
) -> Any:
    """Makes an optimizer of Keras or of tf.compat.v1.train step on the mean or sum of all ranks' gradients.

    Arguments and results: gradbus.keras.DistributedOptimizer(). ``register_local_var(variable)`` of the result makes
    a variable one of this rank, whose gradients are not exchanged.
    """
    options = (op, compression, process_set, gradient_predivide_factor)
    if not isinstance(optimizer, tf.compat.v1.train.Optimizer):
        from ..keras import DistributedOptimizer as of_keras

        return of_keras(
            optimizer, *options, sparse_as_dense=sparse_as_dense, bucket_bytes=bucket_bytes,
            scale_local_gradients=scale_local_gradients,
        )  # fmt: skip
    settings = settings_of("DistributedOptimizer", *options, bucket_bytes)
    prefix = new_prefix("v1")
    before = optimizer.compute_gradients
    local: set[int] = set()  # by id

    def compute_gradients(*arguments: Any, **keywords: Any) -> Any:
        pairs = before(*arguments, **keywords)
        shared = [index for index, (_, variable) in enumerate(pairs) if id(variable) not in local]
        names = names_of([pairs[index][1] for index in shared])
        gradients = [pairs[index][0] for index in shared]
        made = dict(zip(shared, exchange_gradients(gradients, names, prefix, settings, sparse_as_dense)))
        size = session_of(process_set, "compute_gradients").size if scale_local_gradients else 1
        return [
            (made[index] if index in made else divided(gradient, size), variable)
            for index, (gradient, variable) in enumerate(pairs)
        ]

    optimizer.compute_gradients = compute_gradients
    optimizer.register_local_var = lambda variable: local.add(id(variable))
    return optimizer

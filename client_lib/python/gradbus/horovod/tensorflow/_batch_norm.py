"""SyncBatchNormalization: batch normalization with the mean and variance of all ranks' samples."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ..._errors import bad_argument
from ..._session import size
from ...tensorflow import allgather

_Base = tf.keras.layers.BatchNormalization  # of Keras 3, or of Keras 2 with TF_USE_LEGACY_KERAS=1
_HAS_FUSED = _Base.__module__.startswith("tf_keras.")


class SyncBatchNormalization(_Base):  # type: ignore[misc,valid-type,unused-ignore]
    """tf.keras.layers.BatchNormalization that uses the samples of all ranks in training.

    Arguments are those of that layer. Ranks may have batches of different sizes. In training a call is a collective
    operation, and never else. Needs the backend tensorflow of Keras 3.
    """

    def __init__(self, fused: bool | None = False, **kwargs: Any) -> None:
        """``fused`` is False, as in Horovod: fused operations do not give their statistics away."""
        if fused is None or fused:
            raise bad_argument(f"SyncBatchNormalization: fused={fused!r}", "leave fused out")
        super().__init__(**kwargs, **({"fused": False} if _HAS_FUSED else {}))

    def _moments(self, inputs: Any, *arguments: Any, **options: Any) -> Any:
        """Mean and variance. Keras 3 gives the mask as the second argument, and Keras 2 by its name."""
        mean, variance = super()._moments(inputs, *arguments, **options)
        if size() == 1:
            return mean, variance
        mask = options.get("mask", arguments[0] if len(arguments) == 1 else None)
        samples = tf.size(inputs) // tf.size(mean) if mask is None else tf.math.count_nonzero(mask)
        return _of_all_ranks(mean, variance, tf.cast(samples, mean.dtype))


def _of_all_ranks(mean: Any, variance: Any, samples: Any) -> tuple[Any, Any]:
    """Each rank brings its own mean and variance, which are merged: a mean of squares would lose digits."""
    ours = tf.stack([mean, variance, tf.ones_like(mean) * samples])
    means, variances, counts = tf.unstack(allgather(ours[None]), axis=1)
    shares = tf.math.divide_no_nan(counts, tf.reduce_sum(counts, 0))
    joint = tf.reduce_sum(means * shares, 0)
    spread = variances + tf.square(means - joint)
    return joint, tf.reduce_sum(spread * shares, 0)

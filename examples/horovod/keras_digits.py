"""Trains the digits classifier with a Keras script for Horovod, of which one line has changed.

    KERAS_BACKEND=jax gradbus run -np 4 --agents 2 -- python examples/horovod/keras_digits.py     # four ranks
    KERAS_BACKEND=jax python examples/horovod/keras_digits.py                            # one process, same batches
"""

import pathlib
import sys

import gradbus
import gradbus.horovod.keras as hvd  # was: import horovod.keras as hvd
import keras
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from common import plain_digits  # noqa: E402


def build_model(arguments, rank: int) -> keras.Model:
    """Other ranks than 0 begin with zeros: the callback broadcasts."""
    model = keras.Sequential(
        [keras.Input((64,)), keras.layers.Dense(arguments.hidden, "tanh"), keras.layers.Dense(10)]
    )
    model.set_weights(list(plain_digits.initial_parameters(arguments, rank).values()))
    return model


def main() -> None:
    """One rank."""
    arguments = plain_digits.parse_arguments("Horovod's interface for Keras")
    hvd.init()
    model = build_model(arguments, hvd.rank())
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(arguments.lr, momentum=0.9))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    jit_compile = False if keras.backend.backend() == "tensorflow" else "auto"
    model.compile(optimizer, loss, metrics=["accuracy"], jit_compile=jit_compile)
    parts = list(plain_digits.batches(arguments, hvd.rank(), hvd.size()))
    images, labels = (np.concatenate(arrays) for arrays in zip(*parts))
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
    model.fit(images, labels, batch_size=len(parts[0][0]), shuffle=False, verbose=0, callbacks=callbacks)
    plain_digits.report(arguments, gradbus, dict(zip(("w1", "b1", "w2", "b2"), model.get_weights())))
    hvd.shutdown()


if __name__ == "__main__":
    main()

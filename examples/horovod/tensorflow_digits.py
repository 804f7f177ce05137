"""Trains the digits classifier with a TensorFlow script for Horovod, of which one line has changed.

    gradbus run -np 4 --agents 2 -- python examples/horovod/tensorflow_digits.py     # four ranks
    python examples/horovod/tensorflow_digits.py                                     # one process, same batches
"""

import pathlib
import sys

import gradbus.horovod.tensorflow as hvd  # was: import horovod.tensorflow as hvd
import tensorflow as tf

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from common import plain_digits  # noqa: E402


def build_model(arguments, rank: int) -> tf.keras.Model:
    """Other ranks than 0 begin with zeros: the broadcast repairs that."""
    model = tf.keras.Sequential(
        [tf.keras.Input((64,)), tf.keras.layers.Dense(arguments.hidden, "tanh"), tf.keras.layers.Dense(10)]
    )
    model.set_weights(list(plain_digits.initial_parameters(arguments, rank).values()))
    return model


def main() -> None:
    """One rank."""
    arguments = plain_digits.parse_arguments("Horovod's interface for TensorFlow")
    hvd.init()
    model = build_model(arguments, hvd.rank())
    loss_of = tf.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = tf.optimizers.SGD(arguments.lr, momentum=0.9)
    optimizer.build(model.trainable_variables)
    hvd.broadcast_variables(model.variables, root_rank=0)
    hvd.broadcast_variables(optimizer.variables, root_rank=0)

    @tf.function
    def training_step(images, labels):
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(images, training=True))
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    for images, labels in plain_digits.batches(arguments, hvd.rank(), hvd.size()):
        training_step(tf.constant(images), tf.constant(labels))
    plain_digits.report(arguments, hvd, dict(zip(("w1", "b1", "w2", "b2"), model.get_weights())))
    hvd.shutdown()


if __name__ == "__main__":
    main()

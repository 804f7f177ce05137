"""Trains the digits classifier with TensorFlow, data-parallel with Gradbus.

    gradbus run -np 4 --agents 2 -- python examples/tensorflow/digits.py     # four ranks
    python examples/tensorflow/digits.py                                     # one process, same batches
"""

import pathlib
import sys

import gradbus.tensorflow as gradbus
import tensorflow as tf

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from common import plain_digits  # noqa: E402


def loss_of(variables, images, labels):
    """Mean cross-entropy of a batch."""
    hidden = tf.tanh(images @ variables["w1"] + variables["b1"])
    logits = hidden @ variables["w2"] + variables["b2"]
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))


def main() -> None:
    """One rank."""
    arguments = plain_digits.parse_arguments("TensorFlow")
    gradbus.init()
    first = plain_digits.initial_parameters(arguments, gradbus.rank())
    variables = {name: tf.Variable(array, name=name) for name, array in first.items()}
    gradbus.broadcast_variables(list(variables.values()))
    optimizer = tf.keras.optimizers.SGD(arguments.lr, momentum=0.9)
    optimizer.build(list(variables.values()))

    @tf.function
    def step(images, labels):
        with tf.GradientTape() as tape:
            loss = loss_of(variables, images, labels)
        tape = gradbus.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, list(variables.values()))
        optimizer.apply_gradients(zip(gradients, variables.values()))

    for images, labels in plain_digits.batches(arguments, gradbus.rank(), gradbus.size()):
        step(tf.constant(images), tf.constant(labels))
    plain_digits.report(arguments, gradbus, {name: variable.numpy() for name, variable in variables.items()})


if __name__ == "__main__":
    main()

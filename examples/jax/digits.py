"""Trains the digits classifier with JAX and optax, data-parallel with Gradbus.

    gradbus run -np 4 --agents 2 -- python examples/jax/digits.py     # four ranks
    python examples/jax/digits.py                                     # one process, same batches

The whole step, with the exchange of gradients, is one program under jax.jit.
"""

import pathlib
import sys

import gradbus.jax as gradbus
import jax
import optax

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from common import plain_digits  # noqa: E402


def loss_of(parameters, images, labels):
    """Mean cross-entropy of a batch."""
    hidden = jax.numpy.tanh(images @ parameters["w1"] + parameters["b1"])
    logits = hidden @ parameters["w2"] + parameters["b2"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def main() -> None:
    """One rank."""
    arguments = plain_digits.parse_arguments("JAX")
    gradbus.init()
    parameters = jax.tree.map(jax.numpy.asarray, plain_digits.initial_parameters(arguments, gradbus.rank()))
    parameters = gradbus.broadcast_parameters(parameters)
    optimizer = gradbus.distributed(optax.sgd(arguments.lr, momentum=0.9))
    state = optimizer.init(parameters)

    @jax.jit
    def step(parameters, state, images, labels):
        gradients = jax.grad(loss_of)(parameters, images, labels)
        updates, state = optimizer.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state

    for images, labels in plain_digits.batches(arguments, gradbus.rank(), gradbus.size()):
        parameters, state = step(parameters, state, images, labels)
    parameters = gradbus.flush(optimizer, parameters)  # the same on all ranks in any mode
    plain_digits.report(arguments, gradbus, parameters)


if __name__ == "__main__":
    main()

"""Trains the digits classifier under mpirun: MPI for what the script exchanges itself, Gradbus for the gradients.

    mpirun -np 4 python examples/mpi4py/digits.py     # four ranks, with an agent that runs
    python examples/mpi4py/digits.py                  # one process, same batches
"""

import pathlib
import sys

import gradbus.jax as gradbus
import jax
import optax
from mpi4py import MPI

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from common import plain_digits  # noqa: E402


def loss_of(parameters, images, labels):
    """Mean cross-entropy of a batch."""
    hidden = jax.numpy.tanh(images @ parameters["w1"] + parameters["b1"])
    logits = hidden @ parameters["w2"] + parameters["b2"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def main() -> None:
    """One rank."""
    arguments = plain_digits.parse_arguments("mpi4py and JAX")
    world = MPI.COMM_WORLD
    gradbus.init(comm=world)
    parameters = jax.tree.map(jax.numpy.asarray, plain_digits.initial_parameters(arguments, world.Get_rank()))
    parameters = gradbus.broadcast_parameters(parameters)
    optimizer = gradbus.distributed(optax.sgd(arguments.lr, momentum=0.9))
    state = optimizer.init(parameters)

    @jax.jit
    def step(parameters, state, images, labels):
        loss, gradients = jax.value_and_grad(loss_of)(parameters, images, labels)
        updates, state = optimizer.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state, loss

    for images, labels in plain_digits.batches(arguments, world.Get_rank(), world.Get_size()):
        parameters, state, loss = step(parameters, state, images, labels)
    mean = world.allreduce(float(loss)) / world.Get_size()  # through MPI
    if world.Get_rank() == 0:
        print(f"loss of the last batch: {mean:.4f}", file=sys.stderr)
    plain_digits.report(arguments, gradbus, parameters)
    gradbus.shutdown()


if __name__ == "__main__":
    main()

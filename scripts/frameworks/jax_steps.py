"""Steps of JAX: gradbus.jax, or jax.distributed with its collectives over Gloo.

    gradbus run -np 2 --no-prefix -- python scripts/frameworks/jax_steps.py --backend gradbus|gloo
"""

from __future__ import annotations

import os

import steps

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")  # ranks share the cores
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402


def loss_of(parameters, images, labels):
    """Mean cross-entropy."""
    hidden = images
    for number in range(len(steps.WIDTHS) - 1):
        hidden = hidden @ parameters[f"w{number}"] + parameters[f"b{number}"]
        hidden = jax.nn.relu(hidden) if number < len(steps.WIDTHS) - 2 else hidden
    return -jnp.take_along_axis(jax.nn.log_softmax(hidden), labels[:, None], 1).mean()


def updated(parameters, gradients):
    """Plain SGD."""
    return jax.tree.map(lambda value, gradient: value - steps.LEARNING_RATE * gradient, parameters, gradients)


def step_alone(parameters, images, labels):
    """Without an exchange."""
    return updated(parameters, jax.grad(loss_of)(parameters, images, labels))


def with_gradbus(images, labels):
    """(step, arguments)."""
    import gradbus.jax as gradbus

    gradbus.init()

    def step(parameters, images, labels):
        gradients = gradbus.exchange_gradients(jax.grad(loss_of)(parameters, images, labels), "step")
        return updated(parameters, gradients)

    return jax.jit(step), jax.tree.map(jnp.asarray, steps.first_parameters()), jnp.asarray(images), jnp.asarray(labels)


def with_gloo(images, labels):
    """The same by shard_map over a mesh of all processes."""
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as P

    mesh = jax.make_mesh((jax.process_count(),), ("rank",))
    rows, same = NamedSharding(mesh, P("rank")), NamedSharding(mesh, P())

    def local(parameters, images, labels):
        gradients = jax.grad(loss_of)(jax.lax.pcast(parameters, "rank", to="varying"), images, labels)
        return updated(parameters, jax.lax.pmean(gradients, "rank"))

    step = jax.jit(jax.shard_map(local, mesh=mesh, in_specs=(P(), P("rank"), P("rank")), out_specs=P()))
    place = jax.make_array_from_process_local_data
    parameters = {name: place(same, array) for name, array in steps.first_parameters().items()}
    parts = [place(rows, array) for array in (images, labels)]
    return step, parameters, *parts


def main() -> None:
    """One rank."""
    arguments = steps.parse_arguments("gloo")
    rank, size = steps.place()
    images, labels = steps.batch_of(rank, arguments.batch)
    if arguments.backend == "gloo":
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        jax.distributed.initialize(address, size, rank)
    state = [jax.tree.map(jnp.asarray, steps.first_parameters())]
    alone = jax.jit(step_alone)
    mine = jnp.asarray(images), jnp.asarray(labels)

    def run(step, *batch):
        state[0] = jax.block_until_ready(step(state[0], *batch))

    alone_ms = steps.median_ms(lambda: run(alone, *mine), arguments.steps)
    make = with_gradbus if arguments.backend == "gradbus" else with_gloo
    step, state[0], *batch = make(images, labels)
    together_ms = steps.median_ms(lambda: run(step, *batch), arguments.steps)
    total = float(sum(jnp.abs(value).sum() for value in state[0].values()))
    steps.report(arguments.backend, rank, together_ms, alone_ms, total)


if __name__ == "__main__":
    main()

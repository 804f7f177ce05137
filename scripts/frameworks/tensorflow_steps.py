"""Steps of TensorFlow: gradbus.tensorflow, or MultiWorkerMirroredStrategy.

    gradbus run -np 2 --no-prefix -- python scripts/frameworks/tensorflow_steps.py --backend gradbus|strategy
"""

from __future__ import annotations

import contextlib
import json
import os

import steps

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf  # noqa: E402


def loss_of(variables, images, labels):
    """Mean cross-entropy."""
    hidden = images
    for number in range(len(steps.WIDTHS) - 1):
        hidden = hidden @ variables[f"w{number}"] + variables[f"b{number}"]
        hidden = tf.nn.relu(hidden) if number < len(steps.WIDTHS) - 2 else hidden
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, hidden))


def strategy_of(rank: int, size: int):
    """All ranks on this machine, at the ports behind MASTER_PORT."""
    port = int(os.environ["MASTER_PORT"])
    workers = [f"127.0.0.1:{port + number + 1}" for number in range(size)]
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}})
    return tf.distribute.MultiWorkerMirroredStrategy()


def step_of(variables, images, labels, exchange):
    """One step in replica context."""
    with tf.GradientTape() as tape:
        loss = loss_of(variables, images, labels)
    for variable, gradient in zip(variables.values(), exchange(tape, loss)):
        variable.assign_sub(steps.LEARNING_RATE * gradient)


def main() -> None:
    """One rank."""
    arguments = steps.parse_arguments("strategy")
    rank, size = steps.place()
    tf.config.threading.set_intra_op_parallelism_threads(1)  # ranks share the cores
    strategy = strategy_of(rank, size) if arguments.backend == "strategy" else None
    images, labels = map(tf.constant, steps.batch_of(rank, arguments.batch))
    with strategy.scope() if strategy else contextlib.nullcontext():
        variables = {name: tf.Variable(array, name=name) for name, array in steps.first_parameters().items()}
    copies = {name: tf.Variable(array) for name, array in steps.first_parameters().items()}

    @tf.function
    def alone():
        step_of(copies, images, labels, lambda tape, loss: tape.gradient(loss, list(copies.values())))

    def mean_of(tape, loss):
        gradients = tape.gradient(loss, list(variables.values()))
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, gradients)

    def exchanged(tape, loss):
        import gradbus.tensorflow as gradbus

        return gradbus.DistributedGradientTape(tape).gradient(loss, list(variables.values()))

    @tf.function
    def together():
        if strategy is None:
            step_of(variables, images, labels, exchanged)
        else:
            strategy.run(step_of, (variables, images, labels, mean_of))

    if strategy is None:
        import gradbus.tensorflow as gradbus

        gradbus.init()
    alone_ms = steps.median_ms(alone, arguments.steps)
    together_ms = steps.median_ms(together, arguments.steps)
    total = float(sum(tf.reduce_sum(tf.abs(variable)) for variable in variables.values()))
    steps.report(arguments.backend, rank, together_ms, alone_ms, total)


if __name__ == "__main__":
    main()

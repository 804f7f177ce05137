"""A rank whose front end takes other modes than sync: each step is as a simulation of all ranks in NumPy.

    local_modes.py FRAMEWORK MODE       of the job; jax, keras, keras_fit (any backend), mxnet
    local_modes.py jax_together MODE    ranks stay near each other, and their mean goes where it should
    local_modes.py refusals MODE        localsgd, where a front end sees no parameters

The loss is half the squared distance to a point of the rank's own, so the gradient is known.
"""

import os
import sys
import time

import gradbus
import numpy as np

SHAPES = [(6, 4), (5,)]
STEPS, LR = 10, np.float32(0.125)
COLLECTED = 4  # of mode delayed and local modes: more than one exchange


def start_of(rank):
    random = np.random.default_rng([7, rank])
    return [random.standard_normal(shape).astype(np.float32) for shape in SHAPES]


def target_of(rank, step):
    random = np.random.default_rng([rank, step])
    return [random.standard_normal(shape).astype(np.float32) for shape in SHAPES]


def options_of(mode):
    return {name: float(value) for name, _, value in (one.partition("=") for one in mode.partition(":")[2].split(","))}


# ---- what should happen


def delayed(mode, size):
    """All ranks begin as rank 0, as after a broadcast."""
    k = int(options_of(mode)["k"])
    weights, means = start_of(0), []
    for step in range(STEPS):
        gradients = [[w - t for w, t in zip(weights, target_of(rank, step))] for rank in range(size)]
        means.append([sum(parts) / np.float32(size) for parts in zip(*gradients)])
        if step >= k:
            weights = [w - LR * g for w, g in zip(weights, means[step - k])]
        yield [weights] * size


def local(mode, size):
    """Douillard et al. 2023, Algorithm 1; with a learning rate of 1 and no momentum: the mean of the parameters.

    All step from rank 0's parameters. The first gradients are those at a rank's own, as no step came before them.
    """
    chosen = options_of(mode)
    lr, factor = (1.0, 0.0) if mode.startswith("localsgd") else (chosen.get("outer_lr", 0.7), chosen["outer_momentum"])
    theta = start_of(0)
    momentum = [np.zeros_like(one) for one in theta]
    ranks = [start_of(0) for _ in range(size)]
    for step in range(STEPS):
        for rank, weights in enumerate(ranks):
            places = weights if step else start_of(rank)
            gradients = [place - t for place, t in zip(places, target_of(rank, step))]
            ranks[rank] = [w - LR * g for w, g in zip(weights, gradients)]
        if (step + 1) % int(chosen["H"]) == 0:
            for number, before in enumerate(theta):
                mean = sum(before - weights[number] for weights in ranks) / np.float32(size)
                momentum[number] = np.float32(factor) * momentum[number] + mean
                theta[number] = before - np.float32(lr) * (mean + np.float32(factor) * momentum[number])
            ranks = [list(theta) for _ in range(size)]
        yield ranks


# ---- the front ends: a function that makes a step with a target, and one that flushes; both return the parameters


def on_jax(start, op=gradbus.Average):
    import gradbus.jax
    import jax
    import optax

    optimizer = gradbus.jax.distributed(optax.sgd(float(LR)), op)

    @jax.jit
    def step(parameters, state, target):
        gradients = jax.tree_util.tree_map(lambda w, t: w - t, parameters, target)
        updates, state = optimizer.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state

    now = [start, optimizer.init(start)]

    def make(target):
        now[:] = step(*now, target)
        return now[0]

    return make, lambda: gradbus.jax.flush(optimizer, now[0])


def on_keras(start, with_write=False):
    import gradbus.keras
    import keras

    optimizer = gradbus.keras.DistributedOptimizer(keras.optimizers.SGD(float(LR)))
    variables = [keras.Variable(value, name=f"w{number}") for number, value in enumerate(start)]

    def make(target):
        gradients = [keras.ops.convert_to_tensor(keras.ops.convert_to_numpy(v) - t) for v, t in zip(variables, target)]
        optimizer.apply(gradients, variables)
        return values()

    def values():
        return [keras.ops.convert_to_numpy(variable) for variable in variables]

    def write(given):
        for variable, value in zip(variables, given):
            variable.assign(value)

    return (make, lambda: optimizer.flush() or values(), write)[: 3 if with_write else 2]


def on_keras_fit(start, rate=float(LR)):
    """One epoch of one batch for each step: the step is compiled."""
    import gradbus.keras
    import keras

    class Layer(keras.layers.Layer):
        def build(self, _):
            for number, value in enumerate(start):
                setattr(self, f"w{number}", self.add_weight(shape=value.shape, name=f"w{number}"))

        def call(self, targets):
            parts = [(getattr(self, f"w{n}") - target[0]) ** 2 for n, target in enumerate(targets)]
            return sum(keras.ops.sum(part) / 2 for part in parts) + 0 * keras.ops.sum(targets[0], axis=(1, 2))

    inputs = [keras.Input(shape) for shape in SHAPES]
    layer = Layer()
    model = keras.Model(inputs, layer(inputs))
    layer.set_weights(start)
    optimizer = gradbus.keras.DistributedOptimizer(keras.optimizers.SGD(rate))
    model.compile(optimizer, lambda _, found: found, jit_compile=False)

    def make(target):
        model.fit([one[None] for one in target], np.zeros(1), batch_size=1, verbose=0)
        return layer.get_weights()

    return make, lambda: model.optimizer.flush() or layer.get_weights()


def on_mxnet(start, with_write=False, batch=1):
    """``batch``: the gradients are so many times too large before trainer.step() divides them."""
    import gradbus.mxnet
    import mxnet as mx

    parameters = [mx.gluon.Parameter(f"w{number}", shape=value.shape) for number, value in enumerate(start)]
    for parameter, value in zip(parameters, start):
        parameter.initialize()
        parameter.set_data(mx.nd.array(value))
    trainer = gradbus.mxnet.DistributedTrainer(parameters, "sgd", {"learning_rate": float(LR)})

    def make(target):
        with mx.autograd.record():
            loss = sum(batch * ((p.data() - mx.nd.array(t)) ** 2).sum() / 2 for p, t in zip(parameters, target))
        loss.backward()
        trainer.step(batch)
        return values()

    def values():
        return [parameter.data().asnumpy() for parameter in parameters]

    def write(given):
        for parameter, value in zip(parameters, given):
            parameter.set_data(mx.nd.array(value))

    return (make, lambda: trainer.flush() or values(), write)[: 3 if with_write else 2]


def stay_together(rank, size):
    """Each rank is drawn to a target of its own; alone, ranks would end as far from each other as these are."""
    (make, flush), target = on_jax(start_of(0)), target_of(rank, 0)
    for _ in range(40):
        found = make(target)
        time.sleep(0.03)  # averages come in the background
        gradbus.barrier()  # a rank that has finished is drawn to the others' targets only
    mine = np.concatenate([np.asarray(value).reshape(-1) for value in found])
    together = gradbus.allgather(mine[None])
    targets = np.stack([np.concatenate([t.reshape(-1) for t in target_of(one, 0)]) for one in range(size)])
    apart = np.linalg.norm(together - together.mean(0))
    assert apart < 0.7 * np.linalg.norm(targets - targets.mean(0)), apart
    mean = equal_on_all_ranks(flush())  # before, some ranks have applied an average that others have not
    np.testing.assert_allclose(mean, targets.mean(0), atol=0.05)


def equal_on_all_ranks(values):
    mine = np.concatenate([np.asarray(value).reshape(-1) for value in values])
    together = gradbus.allgather(mine[None])
    assert (together == mine).all(), together
    return mine


def refusals():
    import gradbus.jax
    import gradbus.tensorflow
    import jax.numpy as jnp
    import optax
    import tensorflow as tf

    variable = tf.Variable([1.0, 2.0])
    with gradbus.tensorflow.DistributedGradientTape(tf.GradientTape()) as tape:
        loss = tf.reduce_sum(variable**2)
    refused("exchanges parameters, and here Gradbus sees gradients only", lambda: tape.gradient(loss, [variable]))
    start = [jnp.ones(3)]
    optimizer = gradbus.jax.distributed(optax.sgd(0.1))
    state = optimizer.init(start)
    refuse_calls_of_jax(optimizer, start)
    summing = gradbus.jax.distributed(optax.sgd(0.1), op=gradbus.Sum)
    refused("pass op=gradbus.Average", lambda: summing.update(start, state, start))


def refuse_calls_of_jax(optimizer, start):
    """An update without parameters, and a program of two steps."""
    import jax
    import optax

    state = optimizer.init(start)
    refused("call optimizer.update(gradients, state, params)", lambda: optimizer.update(start, state))

    @jax.jit
    def twice(parameters):
        for _ in range(2):
            updates, _ = optimizer.update(parameters, state, parameters)
            parameters = optax.apply_updates(parameters, updates)
        return parameters

    refused("compile one step", lambda: twice(start))


def refused(words, call):
    try:
        call()
    except Exception as error:  # frameworks have their own kinds
        assert "GB-O900" in str(error) and words in str(error), error
    else:
        raise AssertionError(f"no error with: {words}")


def main(framework, mode):
    gradbus.init()
    rank, size = gradbus.rank(), gradbus.size()
    if framework == "jax_together":
        stay_together(rank, size)
    elif framework == "refusals":
        refusals()
    else:
        compare(framework, mode, rank, size)
    print(f"rank {rank} {os.environ.get('KERAS_BACKEND', '')}: ok", flush=True)


def compare(framework, mode, rank, size):
    """With the simulation."""
    make, flush = globals()[f"on_{framework}"](start_of(0 if mode.startswith("delayed") else rank))
    expected = (delayed if mode.startswith("delayed") else local)(mode, size)
    for step, ranks in enumerate(expected):
        found = make(target_of(rank, step))
        for value, wanted in zip(found, ranks[rank]):
            np.testing.assert_allclose(np.asarray(value), wanted, rtol=2e-5, atol=2e-5, err_msg=f"step {step}")
    if not mode.startswith("delayed"):
        equal_on_all_ranks(flush())


if __name__ == "__main__":
    main(*sys.argv[1:])

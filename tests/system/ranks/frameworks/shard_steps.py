"""A rank of JAX, Keras or MXNet whose parameters shards hold.

    shard_steps.py compare FRAMEWORK MODE    each step is as a simulation of all ranks in NumPy; MODE of the job
    shard_steps.py summed MODE               JAX: shards of one node step on the sum of its ranks
    shard_steps.py together MODE             JAX: after flush() the same bits, where the loss is least
    shard_steps.py schedule                  Keras: fit() with a schedule of learning rates
    shard_steps.py mixed                     JAX: one parameter on shards, the other with mode sync
    shard_steps.py compressed                JAX: gradients and parameters travel by a codec
    shard_steps.py steps FIRST LAST          JAX, one rank: these steps of a run, wherever shards begin
    shard_steps.py written FRAMEWORK         what a script writes to a parameter is refused until flush()
    shard_steps.py fit_again                 Keras: a broadcast before the second fit() reaches the shards
    shard_steps.py rows                      Keras on TensorFlow: each rank's gradient has a row of its own
    shard_steps.py lost                      JAX: a step whose time was over is not made again
    shard_steps.py unnamed                   the mode says nothing of an optimizer
    shard_steps.py ignored FRAMEWORK         what shards would step without is refused

The loss is that of local_modes.py: half the squared distance to a point.
"""

# Forked after: jax, keras, tensorflow
import os
import sys
import time

import gradbus
import local_modes
import numpy as np
from local_modes import LR, SHAPES, STEPS, start_of, target_of

OF_BATCH = 4  # of MXNet's trainer


def options_of(mode):
    pairs = [one.partition("=") for one in mode.split(",")[1:]]
    return {name: value if name == "optimizer" else float(value) for name, _, value in pairs}


# ---- what should happen


class Sgd:
    """The formulas of torch.optim.SGD, which are those of shards."""

    def __init__(self, options):
        self.momentum, self.velocity = options.get("momentum", 0), None

    def step(self, weights, gradient, rate):
        self.velocity = gradient if self.velocity is None else self.momentum * self.velocity + gradient
        return weights - rate * self.velocity


class Adam:
    """Those of torch.optim.Adam."""

    eps = 1e-8

    def __init__(self, options):
        self.betas, self.means, self.number = (0.9, options.get("beta2", 0.999)), [0.0, 0.0], 0

    def direction(self, gradient):
        self.number += 1
        powers = (gradient, gradient * gradient)
        self.means = [beta * mean + (1 - beta) * new for beta, mean, new in zip(self.betas, self.means, powers)]
        mean, square = (mean / (1 - beta**self.number) for beta, mean in zip(self.betas, self.means))
        return mean / (np.sqrt(square) + self.eps)

    def step(self, weights, gradient, rate):
        return weights - rate * self.direction(gradient)


class Lamb(Adam):
    """You et al. 2020, algorithm 2. Each parameter has a tensor."""

    eps = 1e-6

    def step(self, weights, gradient, rate):
        way = self.direction(gradient)
        return weights - rate * np.linalg.norm(weights) / np.linalg.norm(way) * way


def simulated(mode, size, rate_of=lambda _: float(LR), brings=start_of):
    """The parameters after each step on the mean of all ranks' gradients, which the mode waits for.

    Rank 0's come to the shards. The first gradients are those at what a rank ``brings``.
    """
    options = options_of(mode)
    kind = {"sgd": Sgd, "adam": Adam, "lamb": Lamb}[options.get("optimizer", "sgd")]
    optimizers = [kind(options) for _ in SHAPES]
    weights = [one.astype(np.float64) for one in start_of(0)]
    for step in range(STEPS):
        ranks = [weights if step else brings(rank) for rank in range(size)]
        gradients = [[w - t for w, t in zip(places, target_of(rank, step))] for rank, places in enumerate(ranks)]
        means = [sum(parts) / size for parts in zip(*gradients)]
        weights = [one.step(w, g, rate_of(step)) for one, w, g in zip(optimizers, weights, means)]
        yield weights


def check(found, expected, what):
    for value, wanted in zip(found, expected):
        np.testing.assert_allclose(np.asarray(value), wanted, rtol=1e-4, atol=1e-4, err_msg=what)


# ---- cases


def front_end(framework, start, **options):
    if framework == "mxnet":
        options["batch"] = OF_BATCH
    return getattr(local_modes, f"on_{framework}")(start, **options)


def compare(framework, mode):
    rank, size = gradbus.rank(), gradbus.size()
    make, flush = front_end(framework, start_of(rank))
    rate = options_of(mode).get("lr", LR) if framework == "jax" else LR
    for step, expected in enumerate(simulated(mode, size, lambda _: float(rate))):
        check(make(target_of(rank, step)), expected, f"step {step}")
    check(local_modes.equal_on_all_ranks(flush())[None], [np.concatenate([w.reshape(-1) for w in expected])], "flush")


def summed(mode):
    rank, size = gradbus.rank(), gradbus.size()
    make, _ = front_end("jax", start_of(rank), op=gradbus.Sum)
    for step, expected in enumerate(simulated(mode, size, lambda _: size * float(LR))):
        check(make(target_of(rank, step)), expected, f"step {step}")


def together(mode):
    rank = gradbus.rank()
    make, flush = front_end("jax", start_of(rank))
    target = target_of(0, 0)
    first = distance(start_of(0), target)
    for _ in range(40):
        make(target)
    found = flush()
    local_modes.equal_on_all_ranks(found)
    assert distance(found, target) < 0.02 * first, (distance(found, target), first)


def distance(found, target):
    return np.sqrt(sum(np.square(np.asarray(value) - wanted).sum() for value, wanted in zip(found, target)))


def schedule():
    import keras

    rates = keras.optimizers.schedules.ExponentialDecay(float(LR), 1, 0.5)
    make, _ = front_end("keras_fit", start_of(0), rate=rates)
    for step, expected in enumerate(simulated("ps:async", 1, lambda step: float(LR) * 0.5**step)):
        check(make(target_of(0, step)), expected, f"step {step}")


def mixed():
    """The names of the parameters in JAX are 0 and 1."""
    rank, size = gradbus.rank(), gradbus.size()
    make, flush = front_end("jax", start_of(0))
    modes = ["ps:quorum,optimizer=adam", "sync"]
    ways = [simulated(mode, size, brings=lambda _: start_of(0)) for mode in modes]
    for step, (on_shards, synchronous) in enumerate(zip(*ways)):
        check(make(target_of(rank, step)), [on_shards[0], synchronous[1]], f"step {step}")
    local_modes.equal_on_all_ranks(flush())


def compressed():
    import gradbus.jax
    import jax.numpy as jnp
    import optax

    optimizer = gradbus.jax.distributed(optax.identity())
    random = np.random.default_rng(5)
    start, target = (random.standard_normal((160, 120)).astype(np.float32) for _ in range(2))
    parameters, state = [jnp.asarray(start)], None
    for step in range(200):
        updates, state = optimizer.update([parameters[0] - target], state, parameters)
        parameters = optax.apply_updates(parameters, updates)
        if step == 0:
            assert not np.allclose(parameters[0], start - 0.05 * (start - target))  # as without a codec
    parameters = gradbus.jax.flush(optimizer, parameters)
    left = distance(parameters, [target]) / distance([start], [target])
    assert left < 0.1, left
    local_modes.equal_on_all_ranks(parameters)


def steps(first, last):
    make, _ = front_end("jax", start_of(int(first)))  # which counts in the run's first step only
    expected = list(simulated(os.environ["GRADBUS_MODE"].replace(",restore=1", ""), 1))
    for step in range(int(first), int(last)):
        if step == 0 or step > int(first):
            check(make(target_of(0, step)), expected[step], f"step {step}")
        else:  # its gradient is that at what this rank has brought
            make([a + (b - c) for a, b, c in zip(start_of(int(first)), target_of(0, step), expected[step - 1])])


def written(framework):
    make, flush, write = writable(framework)
    target = target_of(0, 0)
    for _ in range(2):
        before = [np.array(value) for value in make(target)]
        write([value + np.float32(1) for value in before])
        local_modes.refused("was written to after the last step", lambda: make(target))
        check(flush(), before, "flush")
    make(target)


def writable(framework):
    if framework != "jax":
        return front_end(framework, start_of(0), with_write=True)
    import gradbus.jax
    import optax

    optimizer = gradbus.jax.distributed(optax.sgd(0.1))
    now = [start_of(0), optimizer.init(start_of(0))]

    def make(target):
        gradients = [w - t for w, t in zip(now[0], target)]
        updates, now[1] = optimizer.update(gradients, now[1], now[0])
        now[0] = optax.apply_updates(now[0], updates)
        return now[0]

    def flush():
        now[0] = gradbus.jax.flush(optimizer, now[0])
        return now[0]

    return make, flush, lambda values: now.__setitem__(0, values)


def fit_again():
    """Ranks go to different targets. The root has loaded other weights before the second fit()."""
    import gradbus.keras
    import keras

    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(3, use_bias=False)])
    model.compile(gradbus.keras.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse", jit_compile=False)
    inputs, outputs = np.ones((8, 1), np.float32), np.full((8, 3), 1.0 + gradbus.rank(), np.float32)

    def fit():
        callback = gradbus.keras.callbacks.BroadcastGlobalVariablesCallback(0)
        model.fit(inputs, outputs, batch_size=2, verbose=0, callbacks=[callback])

    fit()
    model.optimizer.flush()
    first = local_modes.equal_on_all_ranks(model.get_weights())
    fit()
    model.optimizer.flush()
    assert np.abs(local_modes.equal_on_all_ranks(model.get_weights()) - 1.5).max() < np.abs(first - 1.5).max() + 0.1
    model.optimizer.learning_rate = 0.0
    if gradbus.rank() == 0:
        model.set_weights([np.full((1, 3), 7.0, np.float32)])
    fit()
    assert (model.get_weights()[0] == 7).all(), model.get_weights()


def rows():
    """Rank 0 makes more steps where shards hold the parameters, so no step may wait for the other rank."""
    import gradbus.keras
    import keras
    import tensorflow as tf

    rank, on_shards = gradbus.rank(), os.environ["GRADBUS_MODE"].startswith("ps:")
    optimizer = gradbus.keras.DistributedOptimizer(keras.optimizers.SGD(0.5))
    table = keras.Variable(np.zeros((4, 3), np.float32), name="table")
    steps = [3, 1] if on_shards else [2, 2]
    for _ in range(steps[rank]):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table.value, [rank]))
        optimizer.apply(tape.gradient(loss, [table.value]), [table])
    if on_shards:
        optimizer.flush()
    expected = [-0.5 * steps[row] if row < 2 and (on_shards or row == rank) else 0 for row in range(4)]
    assert (keras.ops.convert_to_numpy(table).T == expected).all(), table


def lost():
    """Mode ps:quorum waits for both nodes, and rank 1 makes one step only."""
    make, _ = front_end("jax", start_of(0))
    make(target_of(0, 0))
    if gradbus.rank() == 0:
        for words in ("GB-P110", "of 'jax0' was given up (TimeoutError P110)"):
            try:
                make(target_of(0, 0))
            except Exception as error:  # XLA has its own kinds
                assert words in str(error), error
            else:
                raise AssertionError(f"no error with: {words}")
    else:
        time.sleep(8)  # the other rank waits for 3 s


def unnamed():
    import gradbus.jax
    import gradbus.tensorflow
    import jax.numpy as jnp
    import keras
    import optax
    import tensorflow as tf

    mode = os.environ["GRADBUS_MODE"]
    variable = tf.Variable([1.0, 2.0])
    with gradbus.tensorflow.DistributedGradientTape(tf.GradientTape()) as tape:
        loss = tf.reduce_sum(variable**2)
    local_modes.refused("here Gradbus sees gradients only", lambda: tape.gradient(loss, [variable]))
    start = [jnp.ones(3)]
    optimizer = gradbus.jax.distributed(optax.sgd(0.1))
    state = optimizer.init(start)
    local_modes.refused(f"{mode},optimizer=adam,lr=0.001;", lambda: optimizer.update(start, state, start))
    local_modes.refused(f"{mode},optimizer=adam,lr=0.001;", lambda: gradbus.jax.flush(optimizer, start))
    halves = [jnp.ones(3, jnp.bfloat16)]
    local_modes.refused("shards step on float32", lambda: optimizer.update(halves, state, halves))
    for made in (keras.optimizers.SGD(0.1, momentum=0.9), keras.optimizers.Adam()):
        local_modes.refused(f"{mode},optimizer=adam;", lambda made=made: apply(made))


def apply(plain, **options):
    import gradbus.keras
    import keras

    variable = keras.Variable(np.ones(3, np.float32), name="w")
    variable.constraint = options.get("constraint")
    gradbus.keras.DistributedOptimizer(plain).apply([keras.ops.ones(3)], [variable])


def ignored(framework):
    {"keras": ignored_keras, "mxnet": ignored_mxnet, "jax": ignored_jax}[framework]()


def ignored_keras():
    import keras

    mode = os.environ["GRADBUS_MODE"]
    for option, value in {
        "clipnorm": 1.0, "clipvalue": 1.0, "global_clipnorm": 1.0, "use_ema": True, "gradient_accumulation_steps": 2,
        "loss_scale_factor": 8.0,
    }.items():  # fmt: skip
        refused_option = f"step without {option}={value}"
        local_modes.refused(refused_option, lambda o=option, v=value: apply(keras.optimizers.Adam(**{o: v})))
    local_modes.refused(f"{mode},weight_decay=0.5)", lambda: apply(keras.optimizers.Adam(weight_decay=0.5)))
    scaler = keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam())
    local_modes.refused("step without LossScaleOptimizer", lambda: apply(scaler))
    constraint = keras.constraints.NonNeg()
    local_modes.refused("the constraint of", lambda: apply(keras.optimizers.Adam(), constraint=constraint))
    apply(keras.optimizers.Adam())


def ignored_jax():
    """Optax tells nothing: only parameters must be there, and a program makes one step."""
    import gradbus.jax
    import jax.numpy as jnp
    import optax

    start = [jnp.ones(3)]
    optimizer = gradbus.jax.distributed(optax.adam(0.1))
    local_modes.refuse_calls_of_jax(optimizer, start)


def ignored_mxnet():
    import gradbus.mxnet
    import mxnet as mx

    mode = os.environ["GRADBUS_MODE"]

    def step(name="adam", lr_mult=1.0, **options):
        parameters = [mx.gluon.Parameter(f"w{number}", shape=(3,)) for number in range(2)]
        parameters[1].lr_mult = lr_mult
        for parameter in parameters:
            parameter.initialize()
        trainer = gradbus.mxnet.DistributedTrainer(parameters, name, {"learning_rate": 0.1, **options})
        with mx.autograd.record():
            loss = sum((parameter.data() ** 2).sum() for parameter in parameters)
        loss.backward()
        trainer.step(1)

    local_modes.refused("step without clip_gradient=1.0", lambda: step(clip_gradient=1.0))
    local_modes.refused(f"{mode},weight_decay=0.5)", lambda: step(wd=0.5))
    local_modes.refused("step without lr_mult", lambda: step(lr_mult=2.0))
    step()


def main(case, *words):
    gradbus.init()
    globals()[case](*words)
    print(f"rank {gradbus.rank()} {os.environ.get('KERAS_BACKEND', '')}: ok", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A rank: elastic training with Keras and TensorFlow. An agent is lost between two commits, and every step counts once.

    hvd_elastic_keras.py FOLDER fit 2|tensorflow|jax|torch      Keras 2, or the backend of Keras 3
    hvd_elastic_keras.py FOLDER tape|function 2|tensorflow      without fit(), eagerly or in tf.function
    hvd_elastic_keras.py FOLDER session tensorflow              tf.compat.v1

KERAS_BACKEND is that backend. The agent is killed once FOLDER/reached is there, and started again before FOLDER/go is.
"""

import functools
import importlib
import os
import pathlib
import sys
import time

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", TF_USE_LEGACY_KERAS=str(int(sys.argv[3] == "2")))
import gradbus.horovod.keras as hvd
import numpy as np

FOLDER, WHAT, KERAS = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
keras = importlib.import_module("tf_keras" if KERAS == "2" else "keras")
EPOCHS, STEPS, RATE, MOMENTUM = 3, 4, 0.5, 0.5
ORIGIN, VELOCITY = 1.0, 0.25  # those of rank 0 at the start


def input_of(rank, epoch, step):
    """The gradient of the loss -w x is -x."""
    return float(1 + (rank + 3 * epoch + 5 * step) % 7)


def expected(size):
    """Of w, by the formulas of SGD with momentum. All numbers are exact."""
    weight, velocity = ORIGIN, VELOCITY
    for epoch in range(EPOCHS):
        for step in range(STEPS):
            gradient = -sum(input_of(rank, epoch, step) for rank in range(size)) / size
            velocity = MOMENTUM * velocity - RATE * gradient
            weight += velocity
    return weight


def wait_for_the_loss(epoch, step):
    """In the middle of the second epoch, between two commits."""
    if (epoch, step) == (1, 2):
        (FOLDER / "reached").touch()
        while not (FOLDER / "go").exists():
            time.sleep(0.01)


def a_model(optimizer):
    """y = w x without a bias. Ranks begin with other weights, and only rank 0's optimizer has been used."""
    model = keras.Sequential([keras.layers.InputLayer((1,)), keras.layers.Dense(1, use_bias=False)])
    model.set_weights([np.full((1, 1), ORIGIN + hvd.rank(), np.float32)])
    if hvd.rank() == 0:
        optimizer.build(model.trainable_variables)
        optimizer.momentums[0].assign([[VELOCITY]])
    return model


class Losing(keras.callbacks.Callback):
    """Waits for the loss. Keras counts epochs from 0 in each fit()."""

    def __init__(self, state):
        super().__init__()
        self.state = state

    def on_train_batch_begin(self, batch, logs=None):
        wait_for_the_loss(self.state.epoch, batch)


@hvd.elastic.run
def fit(state):
    callbacks = [
        hvd.elastic.UpdateEpochStateCallback(state),
        hvd.elastic.UpdateBatchStateCallback(state),
        hvd.elastic.CommitStateCallback(state, batches_per_commit=STEPS),
        Losing(state),
    ]
    while state.epoch < EPOCHS:
        inputs = [input_of(hvd.rank(), state.epoch, step) for step in range(STEPS)]
        data = np.array(inputs, np.float32)[:, None]
        state.model.fit(data, data, batch_size=1, shuffle=False, verbose=0, callbacks=callbacks)


def fit_state():
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(RATE, momentum=MOMENTUM))
    model = a_model(optimizer)
    options = {"jit_compile": False} if KERAS == "tensorflow" else {}
    model.compile(optimizer, lambda truth, made: -made, **options)
    return hvd.elastic.KerasState(model, epoch=0, batch=0)


def tape_state():
    import gradbus.horovod.tensorflow as hvd_tf

    optimizer = keras.optimizers.SGD(RATE, momentum=MOMENTUM)
    return hvd_tf.elastic.TensorFlowKerasState(a_model(optimizer), optimizer, epoch=0, batch=0)


def one_step(state, value):
    import gradbus.horovod.tensorflow as hvd_tf
    import tensorflow as tf

    with tf.GradientTape() as tape:
        loss = -tf.reduce_sum(state.model(value, training=True))
    tape = hvd_tf.DistributedGradientTape(tape)
    variables = state.model.trainable_variables
    state.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))


def in_steps(step, state):
    while state.epoch < EPOCHS:
        while state.batch < STEPS:
            wait_for_the_loss(state.epoch, state.batch)
            step(input_of(hvd.rank(), state.epoch, state.batch))
            state.batch += 1
            if state.batch % 2 == 1:
                state.commit()
        state.epoch, state.batch = state.epoch + 1, 0
        state.commit()


@hvd.elastic.run
def tape(state):
    import tensorflow as tf

    step = functools.partial(one_step, state)
    step = tf.function(step) if WHAT == "function" else step
    in_steps(lambda number: step(tf.constant([[number]])), state)


def train_in_session():
    """With momentum of TensorFlow, whose velocity has another sign and no learning rate in it."""
    import gradbus.horovod.tensorflow as hvd
    import tensorflow as tf

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        weight = tf.compat.v1.get_variable("w", initializer=ORIGIN + hvd.rank())
        value = tf.compat.v1.placeholder(tf.float32, [])
        optimizer = hvd.DistributedOptimizer(tf.compat.v1.train.MomentumOptimizer(RATE, MOMENTUM))
        step = optimizer.minimize(-weight * value)
        session.run(tf.compat.v1.global_variables_initializer())
        if hvd.rank() == 0:
            session.run(optimizer.get_slot(weight, "momentum").assign(-VELOCITY / RATE))
        state = hvd.elastic.TensorFlowState(session=session, epoch=0, batch=0)
        resets = watched(state)
        tf.compat.v1.get_default_graph().finalize()

        @hvd.elastic.run
        def train(state):
            in_steps(lambda number: session.run(step, {value: number}), state)

        train(state)
        return session.run(weight), resets


def watched(state):
    """What the state is after each loss."""
    resets = []
    state.register_reset_callbacks([lambda: resets.append((state.epoch, state.batch))])
    return resets


def train():
    """The weight, and what watched() has seen."""
    if WHAT == "session":
        return train_in_session()
    state = fit_state() if WHAT == "fit" else tape_state()
    resets = watched(state)
    (fit if WHAT == "fit" else tape)(state)
    assert state.epoch == EPOCHS and state.batch == 0, (state.epoch, state.batch)
    return state.model.get_weights()[0].item(), resets


hvd.init()
weight, resets = train()
assert weight == expected(hvd.size()), (weight, expected(hvd.size()))
assert resets == [(1, 0) if WHAT == "fit" else (1, 1)], resets
assert hvd.allgather(np.array([weight])).shape == (hvd.size(),)  # the session after the loss works
if KERAS in ("jax", "torch"):
    assert "tensorflow" not in sys.modules
print("ok")

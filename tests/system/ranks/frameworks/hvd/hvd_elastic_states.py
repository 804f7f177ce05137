"""A rank: what elastic states of TensorFlow and Keras hold, without a loss.  hvd_elastic_states.py KERAS (2 or 3)"""

import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["TF_USE_LEGACY_KERAS"] = str(int(sys.argv[1] == "2"))

import gradbus.horovod.keras as hvd_keras
import gradbus.horovod.tensorflow as hvd
import gradbus.horovod.tensorflow.keras as hvd_tf_keras
import numpy as np
import pytest
import tensorflow as tf
from gradbus.horovod.common.exceptions import HostsUpdatedInterrupt

hvd.init()
RANK, KERAS = hvd.rank(), sys.argv[1]
OPTIONS = {} if KERAS == "2" else {"jit_compile": False}
OPTIMIZERS = tf.keras.optimizers
SCALER = tf.keras.mixed_precision.LossScaleOptimizer if KERAS == "2" else tf.keras.optimizers.LossScaleOptimizer


def a_model(weight):
    layer = tf.keras.layers.Dense(2, **({"input_shape": (2,)} if KERAS == "2" else {}))
    model = tf.keras.Sequential([layer] if KERAS == "2" else [tf.keras.layers.Input((2,)), layer])
    model.set_weights([np.full((2, 2), weight, np.float32), np.full(2, weight, np.float32)])
    return model


def fit(model, batches=1, **options):
    data = np.arange(4.0 * batches, dtype=np.float32).reshape(-1, 2)
    model.fit(data, data, batch_size=2, verbose=0, shuffle=False, **options)


def numbers(*lists):
    return [np.array(variable) for variables in lists for variable in variables]


def are_equal(ones, others):
    return all(np.array_equal(one, other) for one, other in zip(ones, others, strict=True))


def variables_of(optimizer):
    return optimizer.variables() if callable(optimizer.variables) else optimizer.variables


def check_kinds_of_optimizers():
    """Weights, slots, the number of the step, the learning rate, and the scale of the loss go back together."""
    kinds = [OPTIMIZERS, OPTIMIZERS.legacy] if KERAS == "2" else [OPTIMIZERS]
    for kind in kinds:
        for optimizer in (
            hvd_keras.DistributedOptimizer(kind.SGD(0.125, momentum=0.5)),
            hvd_keras.DistributedOptimizer(kind.Adam(0.125)),
            hvd_tf_keras.DistributedOptimizer(kind.Adam(0.125), backward_passes_per_step=2),
            hvd_keras.DistributedOptimizer(SCALER(kind.Adam(0.125))),
        ):
            check_optimizer(optimizer)


def check_optimizer(optimizer):
    model = a_model(1.0 + RANK)
    model.compile(optimizer, "mse", **OPTIONS)
    state = hvd_keras.elastic.KerasState(model, epoch=RANK)
    state.sync()
    assert state.epoch == 0 and are_equal(model.get_weights(), a_model(1.0).get_weights())
    fit(model, 3)
    before = numbers(model.variables, variables_of(optimizer))
    state.commit()
    fit(model)
    after = numbers(model.variables, variables_of(optimizer))
    optimizer.learning_rate = 3.0
    state.epoch = 5
    for _ in range(2):  # what was restored is not changed by the next steps
        state.restore()
        assert are_equal(numbers(model.variables, variables_of(optimizer)), before)
        assert float(np.array(optimizer.learning_rate)) == 0.125 and state.epoch == 0
        fit(model)
        assert are_equal(numbers(model.variables, variables_of(optimizer)), after)


def check_callbacks():
    """Commits after each second batch and at the end of an epoch, with the numbers of these moments."""
    model = a_model(1.0)
    model.compile(hvd_keras.DistributedOptimizer(OPTIMIZERS.SGD(0.125)), "mse", **OPTIONS)
    elastic = hvd_tf_keras.elastic
    state = elastic.KerasState(model, epoch=0, batch=0)
    commits = []
    state.save = lambda: commits.append((state.epoch, state.batch))
    callbacks = [
        elastic.UpdateEpochStateCallback(state),
        elastic.UpdateBatchStateCallback(state),
        elastic.CommitStateCallback(state, batches_per_commit=2),
    ]
    fit(model, 3, epochs=2, callbacks=callbacks)
    assert commits == [(0, 1), (1, 0), (1, 0), (1, 2), (2, 0)], commits
    fit(model, epochs=4 - state.epoch, callbacks=callbacks)
    assert state.epoch == 4
    fit(model, initial_epoch=state.epoch, epochs=5, callbacks=callbacks)
    assert state.epoch == 5
    assert hvd_keras.elastic.CommitStateCallback(state).batches_per_commit == 1


def check_variables():
    """TensorFlowState, eager, with variables of TensorFlow and of Keras."""
    plain, of_keras = tf.Variable([1.0 + RANK, 2.0]), tf.keras.Variable(3.0) if KERAS == "3" else tf.Variable(3.0)
    state = hvd.elastic.TensorFlowState([plain, of_keras], step=20 + RANK)
    state.sync()
    assert state.step == 20 and plain.numpy().tolist() == [1.0, 2.0]
    plain.assign_add([1.0, 1.0])
    state.step = 21
    state.restore()
    assert state.step == 20 and plain.numpy().tolist() == [1.0, 2.0]
    plain.assign_add([1.0, 1.0])
    of_keras.assign(7.0)
    state.commit()
    plain.assign_add([1.0, 1.0])
    of_keras.assign(8.0)
    state.restore()
    assert plain.numpy().tolist() == [2.0, 3.0] and float(np.array(of_keras)) == 7.0


def check_run():
    """Errors that a script raises: after one the last commit is restored, after the other rank 0's values count."""
    model, optimizer = a_model(1.0 + RANK), OPTIMIZERS.Adam(0.125)
    state = hvd.elastic.TensorFlowKerasState(model, optimizer, step=RANK)
    seen = []
    state.register_reset_callbacks([lambda: seen.append("reset")])

    @hvd.elastic.run
    def train(state):
        seen.append((state.step, float(model.get_weights()[1][0])))
        state.step += 1
        model.set_weights([weight + 1 + RANK for weight in model.get_weights()])
        if len(seen) == 1:
            raise hvd.HorovodInternalError("a step has failed")
        if len(seen) == 3:
            raise HostsUpdatedInterrupt()
        return "done"

    assert train(state) == "done"
    assert seen == [(0, 1.0), "reset", (0, 1.0), "reset", (1, 2.0)], seen
    values = hvd.elastic.ObjectState(hvd.broadcast_object, hvd.rank, step=RANK)
    values.sync()
    assert values.step == 0

    @hvd.elastic.run
    def fail(state):
        tf.debugging.assert_equal(1, 2)

    with pytest.raises(tf.errors.InvalidArgumentError):  # no error of Gradbus, so the job ends
        fail(state)


def check_refusals():
    """One line each, with the next step."""
    model = a_model(1.0)
    unbuilt = tf.keras.Sequential([tf.keras.layers.Dense(2)])
    for words, call in (
        ("call model.build", lambda: hvd_keras.elastic.KerasState(unbuilt)),
        ("pass optimizer=", lambda: hvd_keras.elastic.KerasState(model)),
        ("pass optimizer=", lambda: hvd.elastic.TensorFlowKerasState(model, tf.compat.v1.train.AdamOptimizer())),
        ("pass variables=", hvd.elastic.TensorFlowState),
        ("pass hvd.broadcast_object", lambda: hvd.elastic.ObjectState(print, hvd.rank)),
        ("call commit", hvd.elastic.TensorFlowState([tf.Variable(1.0)]).save),
        ("call commit", hvd.elastic.TensorFlowState([tf.Variable(1.0)]).restore),
    ):
        with pytest.raises(hvd.HorovodInternalError, match=f"GB-O900.* \\| next: .*{words}"):
            call()
    with tf.Graph().as_default():
        tf.compat.v1.get_variable("v", initializer=1.0)
        with pytest.raises(hvd.HorovodInternalError, match="there is no session"):
            hvd.elastic.TensorFlowState().sync()
    if hvd.size() > 1:
        with pytest.raises(hvd.HorovodInternalError, match=r"variable 2 is none on rank 0, and float32\[\] on rank 1"):
            hvd.elastic.TensorFlowState([tf.Variable(1.0) for _ in range(1 + RANK)]).sync()
    state = hvd.elastic.TensorFlowState([tf.Variable(1.0)])
    state.commit()
    state.variables.append(tf.Variable(2.0))
    with pytest.raises(hvd.HorovodInternalError, match="there are 2 variables, and 1 in the last commit"):
        state.restore()


check_kinds_of_optimizers()
check_callbacks()
check_variables()
check_run()
check_refusals()
hvd.barrier()
print("ok")

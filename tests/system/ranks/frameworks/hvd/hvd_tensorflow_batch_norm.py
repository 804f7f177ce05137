"""SyncBatchNormalization of gradbus.horovod.tensorflow equals the layer of Keras on the samples of all ranks."""

import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
if sys.argv[1] == "2":
    os.environ["TF_USE_LEGACY_KERAS"] = "1"

import gradbus.horovod.tensorflow as hvd
import numpy as np
import pytest
import tensorflow as tf

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
ENDS = np.cumsum([0, *range(2, SIZE + 2)])  # rank r has r + 2 samples
MINE = slice(ENDS[RANK], ENDS[RANK + 1])
KINDS = {"2": "tf_keras", "3": "keras"}
UNFUSED = {"fused": False} if sys.argv[1] == "2" else {}
assert tf.keras.layers.Layer.__module__.split(".")[0] == KINDS[sys.argv[1]]


def results(layer, inputs, weights, wrap):
    """Outputs, the gradient of the inputs, the gradients of the variables, and the moving statistics."""

    def call(values):
        with tf.GradientTape() as tape:
            tape.watch(values)
            made = layer(values, training=True)
            loss = tf.reduce_sum(made * weights)
        return made, *tape.gradient(loss, [values, *layer.trainable_variables])

    layer.build(inputs.shape)
    made, back, *of_variables = wrap(call)(tf.constant(inputs))
    return made, back, of_variables, [layer.moving_mean, layer.moving_variance]


def check_against_one_process(shape, axis, wrap):
    """The variables' gradients are those of this rank's samples, so their sum is compared."""
    random = np.random.default_rng(5)
    inputs = (random.normal(size=(ENDS[-1], *shape)) + 100).astype(np.float32)
    weights = random.normal(size=inputs.shape).astype(np.float32)
    alone = results(tf.keras.layers.BatchNormalization(axis=axis, **UNFUSED), inputs, weights, wrap)
    layer = hvd.SyncBatchNormalization(axis=axis)
    made, back, of_variables, moving = results(layer, inputs[MINE], weights[MINE], wrap)
    np.testing.assert_allclose(made, alone[0][MINE], atol=1e-3)
    np.testing.assert_allclose(back, alone[1][MINE], atol=1e-3)
    for one, other in zip(of_variables, alone[2]):
        np.testing.assert_allclose(hvd.allreduce(one, op=hvd.Sum), other, rtol=1e-3, atol=1e-3)
    for one, other in zip(moving, alone[3]):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-5)


for mode in (lambda function: function, tf.function):
    check_against_one_process((3,), -1, mode)
    check_against_one_process((4, 5, 3), -1, mode)
    check_against_one_process((3, 4), 1, mode)
if RANK == 0:  # no rank waits for another
    hvd.SyncBatchNormalization()(tf.ones([2, 3]), training=False)
for fused in (True, None):
    with pytest.raises(ValueError, match=r"fused=.* \| next: leave fused out"):
        hvd.SyncBatchNormalization(fused=fused)
assert isinstance(hvd.SyncBatchNormalization(fused=False), tf.keras.layers.BatchNormalization)
hvd.barrier()
print("ok")

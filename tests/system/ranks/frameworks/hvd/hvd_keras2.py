"""gradbus.horovod.tensorflow, .tensorflow.keras and .keras with Keras 2 as tf.keras (TF_USE_LEGACY_KERAS=1)."""

import os
import pathlib
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["TF_USE_LEGACY_KERAS"] = "1"

import gradbus.horovod.keras as hvd_keras
import gradbus.horovod.tensorflow as hvd_tf
import gradbus.horovod.tensorflow.keras as hvd
import numpy as np
import pytest
import tensorflow as tf

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
TOTAL = sum(range(SIZE))
MEAN = TOTAL / SIZE
FOLDER = pathlib.Path(sys.argv[1])
KINDS = (tf.keras.optimizers, tf.keras.optimizers.legacy)
assert tf.keras.Model.__module__.startswith("tf_keras.")


def model_of(optimizer, weight=1.0):
    """y = w x without a bias, whose gradient of the loss -y is -x."""
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, use_bias=False, input_shape=(1,))])
    model.set_weights([np.full((1, 1), weight)])
    model.compile(optimizer, lambda truth, made: -made, experimental_run_tf_function=False)
    return model


def fitted(model, inputs, **options) -> float:
    data = np.array(inputs, np.float32)[:, None]
    model.fit(data, np.zeros_like(data), batch_size=1, verbose=0, shuffle=False, **options)
    return float(model.get_weights()[0].ravel()[0])


def trained(optimizer, inputs, **options) -> float:
    return fitted(model_of(optimizer), inputs, **options)


def check_training():
    """Rank r's inputs are r: a step adds 0.5 times the mean or the sum of the ranks."""
    for kinds in KINDS:
        sgd = kinds.SGD
        for wrap in (hvd.DistributedOptimizer, hvd_keras.DistributedOptimizer, hvd_tf.DistributedOptimizer):
            assert trained(wrap(sgd(0.5)), [RANK]) == pytest.approx(1 + 0.5 * MEAN)
            assert trained(wrap(sgd(0.5), op=hvd.Sum), [RANK]) == pytest.approx(1 + 0.5 * TOTAL)
            optimizer = wrap(sgd(0.5), gradient_predivide_factor=2.0, compression=hvd.Compression.fp16)
            assert trained(optimizer, [RANK]) == pytest.approx(1 + 0.5 * MEAN)
        first = hvd.add_process_set([0])
        optimizer = hvd.DistributedOptimizer(sgd(0.5), process_set=first)
        assert trained(optimizer, [RANK]) == pytest.approx(1 + 0.5 * RANK)
        hvd.remove_process_set(first)


def check_passes():
    """The sum or the mean of two passes is exchanged once; each pass counts as an iteration, as in Horovod."""
    passes = {"backward_passes_per_step": 2}
    for kinds in KINDS:
        optimizer = hvd.DistributedOptimizer(kinds.SGD(0.5, momentum=0.5), **passes)
        model = model_of(optimizer)
        assert fitted(model, [RANK, 3.0, 9.0]) == pytest.approx(1 + 0.5 * (MEAN + 3))
        assert int(optimizer.iterations) == 3 and int(optimizer._agg_helper.counter) == 1
        velocity = 0.25 * (MEAN + 3) + 0.5 * (9 + MEAN)
        assert fitted(model, [RANK]) == pytest.approx(1 + 0.5 * (MEAN + 3) + velocity)
        optimizer = hvd.DistributedOptimizer(kinds.SGD(0.5), average_aggregated_gradients=True, **passes)
        assert trained(optimizer, [RANK, 3.0]) == pytest.approx(1 + 0.5 * (MEAN + 3) / 2)
        scaling = tf.keras.mixed_precision.LossScaleOptimizer(kinds.SGD(0.5), initial_scale=4.0)
        model = model_of(hvd.DistributedOptimizer(scaling, **passes))
        assert fitted(model, [RANK, 3.0]) == pytest.approx(1 + 0.5 * (MEAN + 3))
        assert fitted(model, [np.inf if RANK else 1.0, 3.0]) == pytest.approx(1 + 0.5 * (MEAN + 3))
        assert fitted(model, [RANK, 3.0]) == pytest.approx(1 + 1.0 * (MEAN + 3))


def check_eager_passes():
    """In a loop without fit(), and in an optimizer made of a configuration, which counts its own passes."""
    for kinds in KINDS:
        made = hvd.DistributedOptimizer(kinds.SGD(1.0), backward_passes_per_step=2)
        for optimizer in (made, made.from_config(made.get_config())):
            variable, unused = tf.Variable(1.0), tf.Variable(2.0)
            for expected in (1, 1 + MEAN * 2, 1 + MEAN * 2, 1 + MEAN * 4):
                pairs = [(tf.constant(-1.0 * RANK), variable), (None, unused)]
                optimizer.apply_gradients(pairs)
                assert float(variable) == expected and float(unused) == 2


def check_rows():
    """A table whose gradients are rows: of all ranks, over two passes, dense, and of a local layer."""
    every = np.ones(SIZE) / SIZE
    for kinds in KINDS:
        for options, steps, expected in (
            ({}, 1, every),
            ({"sparse_as_dense": True}, 1, every),
            ({"backward_passes_per_step": 2}, 2, 2 * every),
            ({"local_layers": True}, 1, np.eye(SIZE)[RANK] / SIZE),
            ({"local_layers": True, "scale_local_gradients": False}, 1, np.eye(SIZE)[RANK]),
        ):
            table = tf.keras.layers.Embedding(SIZE, 1, embeddings_initializer="ones", input_length=1)
            if "local_layers" in options:
                options = {**options, "local_layers": table}
            model = tf.keras.Sequential([table, tf.keras.layers.Flatten()])
            optimizer = hvd_keras.PartialDistributedOptimizer(kinds.SGD(1.0), **options)
            model.compile(optimizer, lambda truth, made: -made)
            fitted(model, [RANK] * steps)
            np.testing.assert_allclose(model.get_weights()[0][:, 0], 1 + expected)


def check_local_variables():
    """As local layers, one by one."""
    for kinds in KINDS:
        optimizer = hvd.DistributedOptimizer(kinds.SGD(0.5), scale_local_gradients=False)
        model = model_of(optimizer)
        optimizer.register_local_var(model.trainable_weights[0])
        assert fitted(model, [RANK]) == pytest.approx(1 + 0.5 * RANK)


def check_callbacks():
    """A number as multiplier decays with the epochs. Variables come from the root, but for local ones."""
    for kinds in KINDS:
        for name, options in (("best.weights.h5", {"save_weights_only": True}), ("best.keras", {})):
            best = hvd.callbacks.BestModelCheckpoint(monitor="loss", mode="min", **options)
            best.filepath = str(FOLDER / f"{kinds.__name__}-{RANK}-{name}")
            callbacks = [
                hvd.callbacks.BroadcastGlobalVariablesCallback(root_rank=1),
                hvd.callbacks.MetricAverageCallback(),
                hvd.callbacks.LearningRateScheduleCallback(0.5, 0.5, start_epoch=1),
                best,
            ]
            model = model_of(hvd.DistributedOptimizer(kinds.SGD(0.5)), float(RANK))
            if not options:
                model.compile(model.optimizer, "mse")
            data = np.full((1, 1), float(RANK), np.float32)
            history = model.fit(data, np.zeros_like(data), epochs=3, verbose=0, callbacks=callbacks).history
            assert history["lr"] == [0.5, 0.5, 0.25]
            if options:
                assert model.get_weights()[0].item() == pytest.approx(1 + (0.5 + 0.5 + 0.25) * MEAN)
                weights = [1, 1 + 0.5 * MEAN, 1 + MEAN]
                np.testing.assert_allclose(history["loss"], [-one * MEAN for one in weights], rtol=1e-6)
            assert pathlib.Path(best.filepath).exists()
    model = model_of(kinds.SGD(0.5), weight=float(RANK))
    local = hvd.callbacks.BroadcastGlobalVariablesCallback(1, local_variables=model.variables)
    local.set_model(model)
    local.on_train_begin()
    assert model.get_weights()[0].item() == RANK


class Own(tf.keras.optimizers.SGD):
    """An optimizer that Keras does not know."""


class LegacyOwn(tf.keras.optimizers.legacy.SGD):
    """A legacy one."""


def check_saved():
    """load_model() finds own optimizers in custom_optimizers= and custom_objects=, and wraps them once."""
    for kind, legacy in ((Own, False), (LegacyOwn, True), (tf.keras.optimizers.legacy.SGD, True)):
        path = str(FOLDER / f"own-{kind.__name__}-{RANK}.h5")
        model = model_of(hvd.DistributedOptimizer(kind(0.5, momentum=0.5)))
        assert fitted(model, [RANK]) == pytest.approx(1 + 0.5 * MEAN)
        model.compile(model.optimizer, "mse")
        model.save(path)
        wrapping = {kind.__name__: lambda kind=kind, **config: hvd.DistributedOptimizer(kind(**config))}
        for options in ({"custom_optimizers": [kind]}, {"custom_objects": wrapping}):
            loaded = hvd.load_model(path, legacy_opts=legacy, **options)
            assert type(loaded.optimizer).__name__ == kind.__name__
            loaded.compile(loaded.optimizer, lambda truth, made: -made)
            assert fitted(loaded, [RANK]) == pytest.approx(1 + 0.5 * MEAN + 0.75 * MEAN)


def check_configuration():
    """That of the plain optimizer. Optimizers made of it exchange, too."""
    for kinds in KINDS:
        plain = kinds.Adam(0.25)
        expected = plain.get_config()
        optimizer = hvd.DistributedOptimizer(plain)
        assert optimizer.get_config() == expected
        assert optimizer.from_config(expected).get_config() == expected
        kind = type(hvd.DistributedOptimizer(kinds.SGD(0.5)))
        again = kind.from_config(kinds.SGD(0.5).get_config())
        assert trained(again, [RANK]) == pytest.approx(1 + 0.5 * MEAN)


for check in (
    check_training, check_passes, check_eager_passes, check_rows, check_local_variables, check_callbacks, check_saved,
    check_configuration,
):  # fmt: skip
    check()
hvd.barrier()
print("ok")

"""gradbus.horovod.keras and gradbus.horovod.tensorflow.keras: values, training, callbacks, models, refusals."""

import os
import pathlib
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import gradbus.horovod.keras as hvd
import gradbus.horovod.tensorflow.keras as hvd_tf
import keras
import numpy as np
import pytest

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
TOTAL = sum(range(SIZE))
MEAN = TOTAL / SIZE


def model_of(optimizer, weight=1.0) -> keras.Model:
    """y = w x without a bias, whose gradient of the loss -y is -x."""
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    model.set_weights([np.full((1, 1), weight)])
    model.compile(optimizer, lambda truth, made: -made, jit_compile=False)
    return model


def trained(optimizer, inputs, weight=1.0, **options) -> float:
    return fitted(model_of(optimizer, weight), inputs, **options)


def fitted(model, inputs, **options) -> float:
    data = np.array(inputs, np.float32)[:, None]
    model.fit(data, np.zeros_like(data), batch_size=1, verbose=0, shuffle=False, **options)
    return float(model.get_weights()[0][0, 0])


def check_values():
    """Python numbers, lists and arrays become tensors of the backend."""
    assert float(hvd.allreduce(RANK * 1.0)) == MEAN
    assert float(hvd.allreduce(RANK * 1.0, average=False)) == TOTAL
    halves = hvd_tf.allreduce([RANK + 1 / 3], op=hvd.Sum, compression=hvd_tf.Compression.fp16, name="halves")
    assert abs(float(halves[0]) - TOTAL - SIZE / 3) < 2e-3 and keras.ops.is_tensor(halves)
    assert np.asarray(hvd.allgather([RANK] * (RANK + 1))).tolist() == [r for r in range(SIZE) for _ in range(r + 1)]
    assert np.asarray(hvd.broadcast(np.full(3, RANK), 1)).tolist() == [1, 1, 1]
    assert np.asarray(hvd.reducescatter(np.arange(SIZE) * 1.0, op=hvd.Sum)).tolist() == [RANK * SIZE]


def check_training():
    """Rank r's inputs are r: a step adds 0.5 times the mean or the sum of the ranks."""
    sgd = keras.optimizers.SGD
    assert trained(hvd.DistributedOptimizer(sgd(0.5)), [RANK]) == pytest.approx(1 + 0.5 * MEAN)
    assert trained(hvd.DistributedOptimizer(sgd(0.5), op=hvd.Sum), [RANK]) == pytest.approx(1 + 0.5 * TOTAL)
    passes = {"backward_passes_per_step": 2}
    assert trained(hvd_tf.DistributedOptimizer(sgd(0.5), **passes), [RANK, 3.0, 9.0]) == pytest.approx(
        1 + 0.5 * (MEAN + 3)
    )  # the third pass waits for a fourth
    optimizer = hvd_tf.DistributedOptimizer(sgd(0.5), average_aggregated_gradients=True, **passes)
    assert trained(optimizer, [RANK, 3.0]) == pytest.approx(1 + 0.5 * (MEAN + 3) / 2)
    first = hvd.add_process_set([0])
    optimizer = hvd_tf.DistributedOptimizer(sgd(0.5), process_set=first)
    assert trained(optimizer, [RANK]) == pytest.approx(1 + 0.5 * RANK)
    hvd.remove_process_set(first)


def check_local_layers():
    """y = b a x, whose gradients are -b x and -a x: a stays this rank's, b is that of all ranks."""
    for scales in (True, False):
        first, second = (keras.layers.Dense(1, use_bias=False, kernel_initializer="ones") for _ in range(2))
        model = keras.Sequential([keras.Input((1,)), first, second])
        optimizer = hvd.PartialDistributedOptimizer(
            keras.optimizers.SGD(0.5), local_layers=first if scales else [first], scale_local_gradients=scales
        )
        model.compile(optimizer, lambda truth, made: -made, jit_compile=False)
        fitted(model, [RANK])
        mine = RANK / SIZE if scales else RANK
        found = [float(weights[0, 0]) for weights in model.get_weights()]
        assert found == pytest.approx([1 + 0.5 * mine, 1 + 0.5 * MEAN]), found


def check_local_variables():
    """As local layers, one by one, and on ranks outside of the process set, too."""
    first = hvd.add_process_set([0])
    for members, kept in ((hvd.global_process_set, RANK), (first, RANK)):
        optimizer = hvd_tf.DistributedOptimizer(
            keras.optimizers.SGD(0.5), process_set=members, scale_local_gradients=False
        )
        model = model_of(optimizer)
        optimizer.register_local_var(model.trainable_weights[0])
        assert fitted(model, [RANK]) == pytest.approx(1 + 0.5 * kept)
    hvd.remove_process_set(first)


def check_rows():
    """A table whose gradients are rows: of a local layer, and over two passes."""
    for options in ({"local_layers": True}, {"backward_passes_per_step": 2}):
        table = keras.layers.Embedding(SIZE, 1, embeddings_initializer="ones")
        if "local_layers" in options:
            options = {"local_layers": table}
        model = keras.Sequential([keras.Input((1,)), table, keras.layers.Flatten()])
        optimizer = hvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.5), **options)
        model.compile(optimizer, lambda truth, made: -made, jit_compile=False)
        fitted(model, [RANK, RANK])
        mine = np.eye(SIZE)[RANK] if "local_layers" in options else np.ones(SIZE)
        np.testing.assert_allclose(model.get_weights()[0][:, 0], 1 + mine / SIZE)


def check_loss_scale():
    """Gradients of two passes are added up inside of loss scaling."""
    for average in (False, True):
        scaling = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.5), initial_scale=4.0)
        optimizer = hvd_tf.DistributedOptimizer(
            scaling, backward_passes_per_step=2, average_aggregated_gradients=average
        )
        model = model_of(optimizer)
        assert fitted(model, [RANK]) == 1
        assert fitted(model, [3.0]) == pytest.approx(1 + 0.5 * (MEAN + 3) / (2 if average else 1))


def check_callbacks():
    """A number as multiplier decays with the epochs. Variables come from the root, but for local ones."""
    folder = pathlib.Path(sys.argv[1])
    best = hvd_tf.callbacks.BestModelCheckpoint(monitor="loss", save_weights_only=True)
    best.filepath = str(folder / f"best-{RANK}.weights.h5")
    history = keras.callbacks.History()
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(root_rank=1),
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateScheduleCallback(0.5, 0.5, start_epoch=1),
        best,
        history,
    ]
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.5))
    weight = trained(optimizer, [RANK], float(RANK), epochs=3, callbacks=callbacks)
    assert weight == pytest.approx(1 + (0.5 + 0.5 + 0.25) * MEAN)
    assert history.history["lr"] == [0.5, 0.5, 0.25]
    weights = [1, 1 + 0.5 * MEAN, 1 + MEAN]
    np.testing.assert_allclose(history.history["loss"], [-one * MEAN for one in weights], rtol=1e-6)
    assert pathlib.Path(best.filepath).exists()
    model = model_of(optimizer=keras.optimizers.SGD(0.5), weight=float(RANK))
    local = hvd.callbacks.BroadcastGlobalVariablesCallback(1, local_variables=model.variables)
    local.set_model(model)
    local.on_train_begin()
    assert float(model.get_weights()[0][0, 0]) == RANK


def check_saved():
    """A saved model has the plain optimizer. load_model() makes it distributed again."""
    path = pathlib.Path(sys.argv[1]) / f"model-{RANK}.keras"
    model = model_of(hvd.DistributedOptimizer(keras.optimizers.SGD(0.5)))
    model.compile(model.optimizer, "mse", jit_compile=False)
    model.save(path)
    loaded = hvd.load_model(path, custom_optimizers=[], compression=hvd.Compression.fp16)
    loaded.compile(loaded.optimizer, lambda truth, made: -made, jit_compile=False)
    assert fitted(loaded, [RANK]) == pytest.approx(1 + 0.5 * MEAN)


@keras.saving.register_keras_serializable("own")
class Own(keras.optimizers.SGD):
    """An optimizer that Keras finds by its registered name."""


def check_saved_passes():
    """The saved optimizer has no passes, and the state that its steps left. So has one that loads its weights."""
    path = pathlib.Path(sys.argv[1]) / f"passes-{RANK}.keras"
    make = lambda kind: hvd_tf.DistributedOptimizer(kind(0.5, momentum=0.5), backward_passes_per_step=2)  # noqa: E731
    velocity = 0.5 * (MEAN + 3)
    for kind in (keras.optimizers.SGD, Own):
        model = model_of(make(kind))
        assert fitted(model, [RANK, 3.0]) == pytest.approx(1 + velocity)
        model.compile(model.optimizer, "mse", jit_compile=False)
        model.save(path)
        loaded = hvd.load_model(path)
        assert type(loaded.optimizer).__mro__[1] is kind and loaded.optimizer.gradient_accumulation_steps is None
        assert int(loaded.optimizer.iterations) == 1
        loaded.compile(loaded.optimizer, lambda truth, made: -made, jit_compile=False)
        expected = 1 + velocity + 0.5 * velocity + 0.5 * MEAN
        assert fitted(loaded, [RANK]) == pytest.approx(expected)
        model.save_weights(path.with_suffix(".weights.h5"))
        again = model_of(make(kind))
        again.optimizer.build(again.trainable_variables)
        again.load_weights(path.with_suffix(".weights.h5"))
        assert int(again.optimizer.iterations) == 1
        assert fitted(again, [RANK, 0.0]) == pytest.approx(expected)


def check_refusals():
    """One line each, with the next step."""
    sgd = keras.optimizers.SGD
    for words, call in (
        ("hvd.Adasum", lambda: hvd.DistributedOptimizer(sgd(0.5), op=hvd.Adasum)),
        ("op=", lambda: hvd.DistributedOptimizer(sgd(0.5), op=2)),
        ("agents compress", lambda: hvd.DistributedOptimizer(sgd(0.5), compression=print)),
        ("backward_passes_per_step=0", lambda: hvd_tf.DistributedOptimizer(sgd(0.5), backward_passes_per_step=0)),
        ("needs Keras 2", lambda: hvd.load_model("file.keras", legacy_opts=True)),
        ("keeps no list of variables", lambda: hvd.broadcast_global_variables(0)),
        ("both given", lambda: hvd.allreduce(1.0, average=True, op=hvd.Sum)),
    ):  # fmt: skip
        with pytest.raises(hvd.HorovodInternalError, match=f"GB-O900.*{words}.* \\| next: "):
            call()


check_values()
check_training()
check_local_layers()
check_local_variables()
check_rows()
check_loss_scale()
check_callbacks()
check_saved()
check_saved_passes()
check_refusals()
hvd.barrier()
print("ok")

"""gradbus.keras with Keras 2 (tf_keras): both kinds of optimizers, callbacks, saved models, loss scaling, errors."""

import os
import pathlib
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import gradbus.keras as gradbus
import gradbus.tensorflow as gradbus_tf
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

gradbus.init(op_timeout=30)
RANK, SIZE = gradbus.rank(), gradbus.size()
MEAN = sum(range(SIZE)) / SIZE
FOLDER = pathlib.Path(sys.argv[1])
KINDS = (tf_keras.optimizers, tf_keras.optimizers.legacy)
INPUTS = np.random.default_rng(1).normal(size=(4 * SIZE, 3)).astype(np.float32)
LABELS = INPUTS @ np.float32([[1], [2], [3]]) + 1


def linear(weight: float, optimizer) -> tf_keras.Model:
    """y = w x without a bias, whose gradient of the loss -y is -x."""
    model = tf_keras.Sequential([tf_keras.layers.Dense(1, use_bias=False, input_shape=(1,))])
    model.set_weights([np.full((1, 1), weight)])
    model.compile(optimizer, lambda truth, made: -made, metrics=["mean_absolute_error"])
    return model


def fitted(model, inputs, **options) -> float:
    data = np.array(inputs, np.float32)[:, None]
    model.fit(data, np.zeros_like(data), batch_size=1, verbose=0, shuffle=False, **options)
    return float(model.get_weights()[0][0, 0])


def network(optimizer) -> tf_keras.Model:
    tf_keras.utils.set_random_seed(7)
    model = tf_keras.Sequential([
        tf_keras.layers.Dense(8, activation="tanh", input_shape=(3,)), tf_keras.layers.Dense(1)
    ])  # fmt: skip
    model.compile(optimizer, "mse")
    return model


def weights_after(optimizer, inputs, labels, how: str) -> list:
    """Of three steps on all of the data: by fit(), by minimize() or by apply_gradients(), eager or in tf.function."""
    model = network(optimizer)
    if how == "fit":
        model.fit(inputs, labels, batch_size=len(inputs), epochs=3, verbose=0, shuffle=False)
        return model.get_weights()

    def loss():
        return tf.reduce_mean((model(inputs) - labels) ** 2)

    def step():
        if how.startswith("minimize"):
            optimizer.minimize(loss, model.trainable_variables)
            return
        with tf.GradientTape() as tape:
            value = loss()
        gradients = tape.gradient(value, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    call = tf.function(step) if how.endswith("function") else step
    for _ in range(3):
        call()
    return model.get_weights()


def check_equal_to_one_process():
    """Each rank has its rows. The mean of the means is the mean over all rows."""
    mine = slice(4 * RANK, 4 * RANK + 4)
    for kinds in KINDS:
        makers = (lambda k=kinds: k.SGD(0.1, momentum=0.9), lambda k=kinds: k.Adam(0.05, clipnorm=1.0))
        for make in makers:
            alone = weights_after(make(), INPUTS, LABELS, "fit")
            for how in ("fit", "minimize", "minimize function", "apply", "apply function"):
                optimizer = gradbus.DistributedOptimizer(make())
                assert type(optimizer).__name__ == type(make()).__name__
                together = weights_after(optimizer, INPUTS[mine], LABELS[mine], how)
                for one, other in zip(alone, together):
                    np.testing.assert_allclose(other, one, atol=1e-5, err_msg=f"{kinds.__name__} {how}")


def check_exchanged_once():
    """A sum that was exchanged twice would be too large: after compute_gradients(), and after a tape of Gradbus."""
    variable = tf.Variable(1.0)
    for kinds in KINDS:
        optimizer = gradbus_tf.DistributedOptimizer(kinds.SGD(1.0), op=gradbus.Sum)
        pairs = optimizer.compute_gradients(lambda: -variable * (RANK + 1), [variable])
        assert float(pairs[0][0]) == -sum(range(1, SIZE + 1))
        optimizer.apply_gradients([(gradient * 1.0, one) for gradient, one in pairs])
        with gradbus_tf.DistributedGradientTape(tf.GradientTape(), op=gradbus.Sum) as tape:
            loss = -variable * (RANK + 1)
        optimizer.apply_gradients([(tape.gradient(loss, variable), variable)])
        optimizer.apply_gradients([(tf.constant(-1.0 * RANK), variable)], experimental_aggregate_gradients=False)
        assert float(variable) == 1 + SIZE * (SIZE + 1) + RANK
        variable.assign(1.0)


def check_callbacks():
    """Rank r's inputs are r: the mean of gradients is -MEAN. Warm-up, velocities and metrics by their formulas."""
    for kinds in KINDS:
        model = linear(float(RANK + 5), gradbus.DistributedOptimizer(kinds.SGD(0.5, momentum=0.5)))
        rates = []

        class Spy(tf_keras.callbacks.Callback):
            """Learning rates as batches end."""

            def on_train_batch_end(self, batch, logs=None, rates=rates):
                """One."""
                rates.append(float(self.model.optimizer.learning_rate))

        callbacks = [
            gradbus.callbacks.BroadcastGlobalVariablesCallback(0),
            gradbus.callbacks.MetricAverageCallback(),
            gradbus.callbacks.LearningRateWarmupCallback(0.5, warmup_epochs=2),
            gradbus.callbacks.LearningRateScheduleCallback(0.5, lambda epoch: 0.1, start_epoch=2),
            Spy(),
        ]
        data = np.full((2, 1), float(RANK)), np.zeros((2, 1))
        history = model.fit(*data, batch_size=1, epochs=3, verbose=0, shuffle=False, callbacks=callbacks).history
        expected = [0.5 / SIZE * ((batch + 1) / 2 * (SIZE - 1) / 2 + 1) for batch in range(4)] + [0.05, 0.05]
        np.testing.assert_allclose(rates, expected, rtol=1e-6)
        weight, velocity, before = 5.0, 0.0, 0.5
        for rate in expected:
            velocity = 0.5 * velocity * rate / before + rate * MEAN
            weight, before = weight + velocity, rate
        np.testing.assert_allclose(model.get_weights()[0], [[weight]], rtol=1e-5)
        together = gradbus.allgather_object([round(value, 5) for value in history["mean_absolute_error"]])
        assert all(one == together[0] for one in together), together
        assert len(history["lr"]) == 3


def check_unknown_shapes():
    """The first batch builds the model: its variables are sent after that."""
    for kinds in KINDS:
        tf_keras.utils.set_random_seed(RANK)
        model = tf_keras.Sequential([tf_keras.layers.Dense(2)])
        model.compile(gradbus.DistributedOptimizer(kinds.Adam(0.1)), "mse")
        broadcast = gradbus.callbacks.BroadcastGlobalVariablesCallback(SIZE - 1)
        model.fit(INPUTS[: 2 * SIZE], INPUTS[: 2 * SIZE, :2], batch_size=2, verbose=0, callbacks=[broadcast])
        for weights in zip(*gradbus.allgather_object(model.get_weights())):
            assert all(np.array_equal(weights[0], other) for other in weights)


def check_loss_scale():
    """An overflow on one rank is one on all: with loss scaling around, inside, and put around by compile()."""
    scaler = tf_keras.mixed_precision.LossScaleOptimizer
    for kinds in KINDS:
        for outside in (False, True):
            inner = kinds.SGD(0.5)
            if outside:
                optimizer = scaler(gradbus.DistributedOptimizer(inner), initial_scale=4.0)
            else:
                optimizer = gradbus.DistributedOptimizer(scaler(inner, initial_scale=4.0))
            model = linear(1.0, optimizer)
            assert fitted(model, [RANK]) == pytest.approx(1 + 0.5 * MEAN)
            assert fitted(model, [np.inf if RANK == SIZE - 1 else 1.0]) == pytest.approx(1 + 0.5 * MEAN)
            assert float(optimizer.loss_scale) == 2
            variable = tf.Variable(1.0)
            pairs = [(tf.constant(np.inf if RANK == SIZE - 1 else 1.0, tf.float32), variable)]
            if outside:
                with pytest.raises(gradbus.GradbusError, match=r"around a distributed.* \| next: pass the LossScale"):
                    optimizer.apply_gradients([(tf.constant(1.0), variable)])
            else:
                optimizer.apply_gradients(pairs)
                assert float(variable) == 1 and float(optimizer.loss_scale) == 1


def check_local_layers():
    """y = b a x: a stays this rank's. Its overflow skips the step of b on all ranks, too."""
    for kinds in KINDS:
        layers = [
            tf_keras.layers.Dense(1, use_bias=False, kernel_initializer="ones", input_shape=(1,)) for _ in range(2)
        ]
        inputs = [tf_keras.Input((1,)), tf_keras.Input((1,))]
        model = tf_keras.Model(inputs, tf_keras.layers.Add()([layer(one) for layer, one in zip(layers, inputs)]))
        scaling = tf_keras.mixed_precision.LossScaleOptimizer(kinds.SGD(0.5), initial_scale=4.0)
        model.compile(gradbus.DistributedOptimizer(scaling, local_layers=[layers[1]]), lambda truth, made: -made)

        def step(of_local, model=model):
            model.fit([np.full((1, 1), float(RANK)), np.full((1, 1), of_local)], np.zeros((1, 1)), verbose=0)
            return [weight.item() for weight in model.get_weights()]

        right = [1.0 + 0.5 * MEAN, 1.0 + 0.5 * (RANK + 1) / SIZE]
        np.testing.assert_allclose(step(RANK + 1.0), right, rtol=1e-6)
        np.testing.assert_allclose(step(np.inf if RANK == SIZE - 1 else 1.0), right, rtol=1e-6)


def check_saved():
    """A saved model has the plain optimizer and its state; load_model() makes it distributed again."""
    for kinds in KINDS:
        for suffix in (".keras", ".h5", ""):
            if kinds is tf_keras.optimizers.legacy and suffix == ".keras":
                continue  # Keras 2 leaves the state of legacy optimizers out
            velocity = 0.25 * MEAN if suffix else 0  # and of all optimizers in folders
            path = str(FOLDER / f"{kinds.__name__}-{RANK}{suffix}")
            model = linear(1.0, gradbus.DistributedOptimizer(kinds.SGD(0.5, momentum=0.5)))
            assert fitted(model, [RANK]) == pytest.approx(1 + 0.5 * MEAN)
            model.compile(model.optimizer, "mse")
            model.save(path)
            assert type(tf_keras.models.load_model(path).optimizer) is kinds.SGD
            loaded = gradbus.load_model(path)
            loaded.compile(loaded.optimizer, lambda truth, made: -made)
            assert fitted(loaded, [RANK]) == pytest.approx(1 + MEAN + velocity), (kinds, suffix)
    with pytest.raises(gradbus.GradbusError, match="wrap it once"):
        gradbus.DistributedOptimizer(loaded.optimizer)
    with pytest.raises(gradbus.GradbusError, match="is no optimizer of Keras"):
        gradbus.DistributedOptimizer(loaded)


for check in (
    check_equal_to_one_process, check_exchanged_once, check_callbacks, check_unknown_shapes, check_loss_scale,
    check_local_layers, check_saved,
):  # fmt: skip
    check()
gradbus.barrier()
print("ok")

"""gradbus.keras on the backend of KERAS_BACKEND: the optimizer, the callbacks, saved models, errors."""

import os
import pathlib
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import gradbus.keras as gradbus
import keras
import numpy as np
import pytest

gradbus.init(op_timeout=30)
RANK, SIZE = gradbus.rank(), gradbus.size()
MEAN = sum(range(SIZE)) / SIZE
JIT = False if keras.backend.backend() == "tensorflow" else "auto"


def linear(weight: float, optimizer) -> keras.Model:
    """y = w x without a bias, whose gradient of the loss -y is -x."""
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    model.set_weights([np.full((1, 1), weight)])
    model.compile(optimizer, lambda truth, made: -made, metrics=["mean_absolute_error"], jit_compile=JIT)
    return model


def check_training():
    """Rank r's inputs are r: the mean of gradients is -MEAN. Warm-up, velocities and metrics by their formulas."""
    model = linear(float(RANK + 5), gradbus.DistributedOptimizer(keras.optimizers.SGD(0.5, momentum=0.5)))
    rates = []

    class Spy(keras.callbacks.Callback):
        """Learning rates as batches end."""

        def on_train_batch_end(self, batch, logs=None):
            """One."""
            if hasattr(self.model, "jax_state_sync"):
                self.model.jax_state_sync()
            rates.append(float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate)))

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
    return model


def check_scaled_velocities():
    """Velocities inside of loss scaling follow the learning rate, too."""
    inner = keras.optimizers.SGD(0.5, momentum=0.5)
    model = linear(1.0, gradbus.DistributedOptimizer(keras.optimizers.LossScaleOptimizer(inner, initial_scale=4.0)))
    slower = gradbus.callbacks.LearningRateScheduleCallback(0.5, lambda epoch: 1.0 if epoch < 1 else 0.1)
    data = np.full((1, 1), float(RANK)), np.zeros((1, 1))
    model.fit(*data, epochs=2, verbose=0, callbacks=[slower])
    velocity = 0.5 * 0.1 * (0.5 * MEAN) + 0.05 * MEAN
    np.testing.assert_allclose(model.get_weights()[0], [[1.0 + 0.5 * MEAN + velocity]], rtol=1e-5)


def check_loss_scale():
    """Gradients are exchanged before the scale is taken off: an overflow on one rank is one on all ranks."""
    inner = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.5), initial_scale=4.0)
    model = linear(1.0, gradbus.DistributedOptimizer(inner))
    model.fit(np.full((1, 1), float(RANK)), np.zeros((1, 1)), verbose=0)
    np.testing.assert_allclose(model.get_weights()[0], [[1.0 + 0.5 * MEAN]], rtol=1e-6)
    model.fit(np.full((1, 1), np.inf if RANK == SIZE - 1 else 1.0), np.zeros((1, 1)), verbose=0)
    np.testing.assert_allclose(model.get_weights()[0], [[1.0 + 0.5 * MEAN]], rtol=1e-6)
    assert float(keras.ops.convert_to_numpy(inner.dynamic_scale)) == 2


def check_local_overflow():
    """An overflow in a local layer of one rank skips the step on all: the shared weight stays equal."""
    inputs = [keras.Input((1,)), keras.Input((1,))]
    layers = [keras.layers.Dense(1, use_bias=False, kernel_initializer="ones") for _ in inputs]
    model = keras.Model(inputs, keras.layers.Add()([layer(one) for layer, one in zip(layers, inputs)]))
    inner = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.5), initial_scale=4.0)
    optimizer = gradbus.DistributedOptimizer(inner, local_layers=[layers[1]])
    model.compile(optimizer, lambda truth, made: -made, jit_compile=JIT)

    def step(of_local):
        shared, local = np.full((1, 1), float(RANK)), np.full((1, 1), of_local)
        model.fit([shared, local], np.zeros((1, 1)), verbose=0)
        return [weight.item() for weight in model.get_weights()]

    right = [1.0 + 0.5 * MEAN, 1.0 + 0.5 * (RANK + 1) / SIZE]
    np.testing.assert_allclose(step(RANK + 1.0), right, rtol=1e-6)
    np.testing.assert_allclose(step(np.inf if RANK == SIZE - 1 else 1.0), right, rtol=1e-6)
    assert float(keras.ops.convert_to_numpy(inner.dynamic_scale)) == 2


def check_scaler_around():
    """compile() of a model in mixed_float16 puts loss scaling around: refused, with the right way."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    model = linear(1.0, gradbus.DistributedOptimizer(keras.optimizers.SGD(0.5)))
    keras.config.set_dtype_policy(before)
    with pytest.raises(gradbus.GradbusError, match=r"inside a LossScaleOptimizer.* \| next: pass gradbus"):
        model.fit(np.ones((1, 1)), np.zeros((1, 1)), verbose=0)


def check_saved(model):
    """A saved model has the plain optimizer; load_model() makes it distributed again, with its state."""
    path = pathlib.Path(sys.argv[1]) / f"{keras.backend.backend()}-{RANK}.keras"
    plain = linear(1.0, keras.optimizers.SGD(0.5))
    plain.fit(np.ones((1, 1)), np.zeros((1, 1)), verbose=0)
    distributed = linear(1.0, gradbus.DistributedOptimizer(keras.optimizers.SGD(0.5)))
    distributed.compile(distributed.optimizer, "mse", jit_compile=JIT)
    distributed.save(path)
    loaded = gradbus.load_model(path)
    loaded.compile(loaded.optimizer, lambda truth, made: -made, jit_compile=JIT)
    assert type(loaded.optimizer).__name__ == "SGD" and loaded.optimizer.get_config()["learning_rate"] == 0.5
    loaded.fit(np.full((1, 1), float(RANK)), np.zeros((1, 1)), verbose=0)
    np.testing.assert_allclose(loaded.get_weights()[0], [[1.0 + 0.5 * MEAN]], rtol=1e-6)
    with pytest.raises(gradbus.GradbusError, match="wrap it once"):
        gradbus.DistributedOptimizer(model.optimizer)
    with pytest.raises(gradbus.GradbusError, match="is no optimizer of Keras"):
        gradbus.DistributedOptimizer("sgd")
    with pytest.raises(gradbus.GradbusError, match="is no positive number"):
        gradbus.callbacks.LearningRateScheduleCallback(0, 1.0)


check_saved(check_training())
check_loss_scale()
check_scaled_velocities()
check_local_overflow()
check_scaler_around()
gradbus.barrier()
print("ok")

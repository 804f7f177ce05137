"""One step of each front end's optimizers, for models of any shapes: what bad_input.py gives bad input to.

``STEPS[framework]`` has functions by kind. Each takes shapes and a dtype, and makes a model of zeros with a step, whose
gradients are the rank plus one. The step is SGD's with rate 1, or Adam's, and returns the first parameter.
"""

import os
import pathlib
import sys

RANK, SIZE = int(os.environ["GRADBUS_RANK"]), int(os.environ["GRADBUS_SIZE"])


def of_torch(package):
    import torch

    names = __import__(f"gradbus.{package}", fromlist=["init"])

    def parameters(shapes, dtype):
        return [torch.nn.Parameter(torch.zeros(shape, dtype=getattr(torch, dtype))) for shape in shapes]

    def stepping(optimizer, members):
        def step():
            optimizer.zero_grad()
            sum(((RANK + 1) * one).sum() for one in members).backward()
            optimizer.step()
            return members[0].detach()

        step.value = lambda: members[0].detach().tolist()
        return step

    def wrapped(shapes, dtype, **options):
        members = parameters(shapes, dtype)
        named = [(f"p{number}", one) for number, one in enumerate(members)]
        return stepping(names.DistributedOptimizer(torch.optim.SGD(members, lr=1), named, **options), members)

    def sharded(shapes, dtype):
        return wrapped(shapes, dtype, shard=True)

    def onebit(shapes, dtype):
        members = parameters(shapes, dtype)
        return stepping(names.OneBitAdam(members, lr=1.5), members)

    of_all = {"optimizer": wrapped, "shard": sharded, "onebit": onebit}
    return of_all if package == "torch" else {"hvd optimizer": wrapped}


def of_hook():
    """gradbus.hook() in DDP on Gloo, which compares shapes itself."""
    import gradbus.torch as names
    import torch
    import torch.distributed as dist

    if not dist.is_initialized():
        store = dist.FileStore(str(pathlib.Path(sys.argv[2]) / "hook-store"), SIZE)
        dist.init_process_group("gloo", rank=RANK, world_size=SIZE, store=store)

    def hooked(shapes, dtype):
        model = torch.nn.Linear(shapes[0][1], shapes[0][0], bias=False, dtype=getattr(torch, dtype))
        torch.nn.init.zeros_(model.weight)
        parallel = torch.nn.parallel.DistributedDataParallel(model)
        parallel.register_comm_hook(None, names.hook())
        optimizer = torch.optim.SGD(model.parameters(), lr=1)

        def step():
            optimizer.zero_grad()
            ((RANK + 1) * parallel(torch.ones(1, shapes[0][1]))).sum().backward()
            optimizer.step()
            return model.weight.detach()

        return step

    return {"hook": hooked}


def of_jax():
    import gradbus.jax as names
    import jax
    import jax.numpy as jnp
    import optax

    def plain(shapes, dtype, compile=lambda function: function):
        parameters = [jnp.zeros(shape, dtype) for shape in shapes]
        optimizer = names.distributed(optax.sgd(1.0))
        state = optimizer.init(parameters)
        gradients = [jnp.full(shape, RANK + 1, dtype) for shape in shapes]
        update = compile(lambda: optimizer.update(gradients, state, parameters)[0])
        return lambda: jax.block_until_ready(update())[0]

    def compiled(shapes, dtype):
        return plain(shapes, dtype, jax.jit)

    return {"optax": plain, "optax jit": compiled}


def of_tensorflow():
    import gradbus.tensorflow as names
    import tensorflow as tf

    def tape(shapes, dtype, compile=lambda function: function, distributed=names.DistributedGradientTape):
        variables = [tf.Variable(tf.zeros(shape, dtype), name=f"v{number}") for number, shape in enumerate(shapes)]

        def step():
            with tf.GradientTape() as tape:
                loss = tf.add_n([tf.reduce_sum(tf.cast(RANK + 1, dtype) * variable) for variable in variables])
            name = f"{len(made)}"
            gradients = distributed(tape, name=name).gradient(loss, variables)
            return -gradients[0]

        made = [None] * next(numbers)
        return compile(step)

    def function(shapes, dtype):
        return tape(shapes, dtype, tf.function)

    def of_horovod(shapes, dtype):
        import gradbus.horovod.tensorflow as hvd

        return tape(shapes, dtype, distributed=lambda tape, name: hvd.DistributedGradientTape(tape))

    import itertools

    numbers = itertools.count(1)
    return {"tape": tape, "tape function": function, "hvd tape": of_horovod}


def of_keras():
    import gradbus.keras as names
    import keras

    def apply(shapes, dtype, names=names):
        variables = [keras.Variable(keras.ops.zeros(shape, dtype), name=f"v{n}") for n, shape in enumerate(shapes)]
        optimizer = names.DistributedOptimizer(keras.optimizers.SGD(1.0))
        optimizer.build(variables)

        def step():
            optimizer.apply([keras.ops.full(shape, RANK + 1, dtype) for shape in shapes], variables)
            return variables[0].numpy()

        return step

    def of_horovod(shapes, dtype):
        import gradbus.horovod.keras as hvd

        return apply(shapes, dtype, hvd)

    return {"keras": apply, "hvd keras": of_horovod}


def of_mxnet():
    import gradbus.mxnet as names
    import mxnet as mx

    def trainer(shapes, dtype, names=names):
        parameters = [mx.gluon.Parameter(f"p{number}", shape=shape, dtype=dtype) for number, shape in enumerate(shapes)]
        for one in parameters:
            one.initialize(mx.init.Zero())
        gluon = names.DistributedTrainer(parameters, "sgd", {"learning_rate": 1.0})

        def step():
            with mx.autograd.record():
                loss = sum(((RANK + 1) * one.data()).sum() for one in parameters)
            loss.backward()
            gluon.step(1)
            return parameters[0].data()

        return step

    def of_horovod(shapes, dtype):
        import gradbus.horovod.mxnet as hvd

        return trainer(shapes, dtype, hvd)

    return {"trainer": trainer, "hvd trainer": of_horovod}


STEPS = {
    "torch": lambda: {**of_torch("torch"), **of_hook()}, "horovod": lambda: of_torch("horovod.torch"), "jax": of_jax,
    "tensorflow": of_tensorflow, "keras": of_keras, "mxnet": of_mxnet,
}  # fmt: skip

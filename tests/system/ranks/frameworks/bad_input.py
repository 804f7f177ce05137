"""A rank that is given bad input in every way: `bad_input.py FRAMEWORK FOLDER`. Rank 0 prints a JSON line per case.

{"case", "says": what was raised or warned, in one text, or what came back, "seconds"}. Rank 1 takes part, or stays away
until rank 0 has heard of it. The program ends without shutdown().
"""

import functools
import json
import os
import pathlib
import select
import signal
import sys
import threading
import time
import warnings

import bad_steps

FRAMEWORK, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])
RANK = int(os.environ["GRADBUS_RANK"])
TIMEOUT_S, CHILD_S = 6, 60
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"  # a second device for JAX
os.environ["KERAS_BACKEND"] = "jax"


def of_torch(package):
    import torch

    names = __import__(f"gradbus.{package}", fromlist=["init"])
    return names, lambda n, dtype="float32": torch.ones(n, dtype=getattr(torch, dtype)), {
        "meta": lambda: torch.ones(2, device="meta")}, None  # fmt: skip


def of_jax():
    import gradbus.jax as names
    import jax
    import jax.numpy as jnp

    def compiled(array, name):
        return jax.jit(lambda x: names.allreduce(x, name=name))(array).block_until_ready()

    return names, lambda n, dtype="float32": jnp.ones(n, dtype), {
        "second": lambda: jax.device_put(jnp.ones(2), jax.devices()[1])}, compiled  # fmt: skip


def of_tensorflow():
    import tensorflow as tf

    devices = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], devices)
    import gradbus.tensorflow as names

    def second():
        with tf.device("CPU:1"):
            return tf.ones(2)

    def compiled(array, name):
        return tf.function(lambda: names.allreduce(array, name=name))()

    return names, lambda n, dtype="float32": tf.ones(n, getattr(tf, dtype)), {"second": second}, compiled


def of_keras():
    import gradbus.keras as names
    import keras

    def second():
        with keras.device("cpu:1"):
            return keras.ops.ones(2)

    return names, lambda n, dtype="float32": keras.ops.ones(n, dtype), {"second": second}, None


def of_mxnet():
    import gradbus.mxnet as names
    import mxnet as mx

    return names, lambda n, dtype="float32": mx.nd.ones(n, dtype=dtype), {
        "second": lambda: mx.nd.ones(2, ctx=mx.cpu(1))}, None  # fmt: skip


gradbus, ones, elsewhere, compiled = {
    "torch": lambda: of_torch("torch"), "horovod": lambda: of_torch("horovod.torch"), "jax": of_jax,
    "tensorflow": of_tensorflow, "keras": of_keras, "mxnet": of_mxnet}[FRAMEWORK]()  # fmt: skip


from gradbus._gradients import average_metrics  # noqa: E402 - the framework is set up before


def eager(array, name):
    return gradbus.allreduce(array, name=name)


def said_by(call):
    """What the user reads: the exception, or the warnings, or the values."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = call()
        except (Exception, KeyboardInterrupt) as error:
            return f"{type(error).__name__}: {error}"
    ours = [str(one.message) for one in caught if "gradbus" in str(one.message).lower()]
    return " ".join(ours) if ours else "nothing" if result is None else str(result)


def report(case, call):
    began = time.monotonic()
    says = said_by(call)
    if RANK == 0:
        print(json.dumps({"case": case, "says": says, "seconds": time.monotonic() - began}), flush=True)


def alone(case, call):
    """Rank 0 calls, and rank 1 stays away until then."""
    done = FOLDER / f"{FRAMEWORK}-{case}"
    if RANK == 0:
        report(case, call)
        done.touch()
    while not done.exists():
        time.sleep(0.02)


def interrupted(call):
    """Ctrl-C comes while the call waits."""
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        return call()
    finally:
        timer.join()


def in_fork():
    """What a child says of an operation, and how it ends."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, said_by(lambda: eager(mine, "forked")).encode())
        os._exit(0)
    heard = select.select([reading], [], [], CHILD_S)[0]
    text = os.read(reading, 1 << 16).decode() if heard else "the child hangs"
    if not heard:
        os.kill(child, signal.SIGKILL)
    return f"{text}; status {os.waitpid(child, 0)[1]}"


def mismatches(kind, reduce):
    report(f"{kind}shape", lambda: reduce(ones(2 + RANK), "shape"))
    report(f"{kind}dtype", lambda: reduce(ones(2, ("float32", "int32")[RANK]), "dtype"))
    report(f"{kind}afterwards", lambda: reduce(mine, f"{kind}afterwards"))


def broadcast_of_others():
    """Between arrays that are alike lies one of as many elements, in another shape."""
    arrays = {"first": ones(1), "other": ones(((2, 3), (3, 2))[RANK]), "last": ones(1)}
    if hasattr(gradbus, "broadcast_parameters"):
        return gradbus.broadcast_parameters(arrays, root_rank=0)
    return gradbus.broadcast_variables(variables_of(arrays), root_rank=0)


def variables_of(arrays):
    if FRAMEWORK == "keras":
        import keras

        return [keras.Variable(value, name=name) for name, value in arrays.items()]
    import tensorflow as tf

    return [tf.Variable(value, name=name) for name, value in arrays.items()]


def waits(kind, reduce):
    alone(f"{kind}absent", lambda: reduce(mine, f"{kind}absent"))
    alone(f"{kind}interrupt", lambda: interrupted(lambda: reduce(mine, f"{kind}interrupt")))


start = gradbus.init
if FRAMEWORK == "horovod":  # its init() has other arguments: first as here, then as a script of Horovod's calls it
    from gradbus import init as start
alone("init alone", lambda: start(job=f"half-{FRAMEWORK}", rank=0, size=2, start_timeout=1))
start(op_timeout=TIMEOUT_S)
mine = ones(2)
report("init twice", gradbus.init)
report("init of another size", lambda: start(size=5))
for kind, make in elsewhere.items():
    report(kind, functools.partial(eager, make(), "elsewhere"))
mismatches("", eager)
report("broadcast of others", broadcast_of_others)
report("metrics of others", lambda: average_metrics({"m" * 300 + str(RANK): 1.0}, "metrics"))
if compiled:
    mismatches("compiled ", compiled)
alone("fork", in_fork)
report("after fork", lambda: eager(mine, "after"))
waits("", eager)
if compiled:
    waits("compiled ", compiled)
report("at the end", lambda: eager(mine, "end"))


TORCH = ("torch", "horovod")  # their optimizers take the result later, and go on
SEVERAL = ("shard", "onebit", "hook")  # operations in a step: a rank that gave up the first misses the others


def in_parts(kind, make, step):
    """The step that waits, and a new optimizer. In the hook, backward() of C++ waits, which does not see Ctrl-C."""
    if kind == "hook":
        step()  # DDP makes its buckets anew, over Gloo
    for case in ("absent",) if kind == "hook" else ("absent", "interrupt"):
        alone(f"{kind}: {case}", step if case == "absent" else functools.partial(interrupted, step))
        step = make([(2, 2)], "float32")
        report(f"{kind}: after {case}", step)


def steps(kind, make):
    """Models that differ between ranks; then one that does not, which a rank leaves alone, and Ctrl-C."""
    models = {
        "shape": lambda: make([(2, 3 + RANK)], "float32"),
        "transposed": lambda: make([(2 + RANK, 3 - RANK), (3, 2)], "float32"),
        "dtype": lambda: make([(2, 3)], ("float32", "float16")[RANK]),
        "layers": lambda: make([(2, 3)] * (1 + RANK), "float32"),
    }  # fmt: skip
    if kind == "onebit":
        del models["dtype"]  # a rank refuses its own
    for case, model in models.items() if kind != "hook" else ():  # DDP compares shapes itself
        report(f"{kind}: {case}", lambda: model()())  # noqa: B023
    step = make([(2, 2)], "float32")
    report(f"{kind}: right", step)
    if kind in SEVERAL:
        in_parts(kind, make, step)
        return
    for case in ("absent", "interrupt"):
        alone(f"{kind}: {case}", step if case == "absent" else functools.partial(interrupted, step))
        if RANK == 1:
            step()  # the round that rank 0 gave up
        if FRAMEWORK in TORCH:
            report(f"{kind}: after {case}", lambda: gradbus.allgather_object(step.value()))  # noqa: B023
            continue
        if RANK == 0:
            report(f"{kind}: after {case}", step)
        if kind == "hvd tape":  # all tapes have one name, which is free in a new job
            gradbus.shutdown()
            start(op_timeout=TIMEOUT_S)
        step = make([(2, 2)], "float32")
        step()
    report(f"{kind}: afterwards", step)


for kind, make in bad_steps.STEPS[FRAMEWORK]().items():
    steps(kind, make)

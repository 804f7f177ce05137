"""Collectives of gradbus.jax against formulas, inside and outside jax.jit; the optimizer; errors."""

import pathlib

import gradbus.jax as gradbus
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from gradbus._gradients import Gradient, GradientExchange, Settings

jax.config.update("jax_num_cpu_devices", 2)
gradbus.init(op_timeout=30)
RANK, SIZE = gradbus.rank(), gradbus.size()
MEAN = sum(range(SIZE)) / SIZE
TOTAL = SIZE * MEAN


def check(got, expected):
    """Equal, in shape too."""
    np.testing.assert_array_equal(np.asarray(got, np.float64), np.asarray(expected, np.float64))


def operations(x):
    """All of them on an array whose elements are 2 ranks + 3, and that has SIZE rows."""
    return {
        "mean": gradbus.allreduce(x),
        "sum": gradbus.allreduce({"a": x, "b": x.astype(jnp.bfloat16)}, op=gradbus.Sum, prescale_factor=0.5),
        "max": gradbus.allreduce(x.astype(jnp.int32), op=gradbus.Max),
        "any": gradbus.allreduce(x > 3, op=gradbus.Max),
        "last": gradbus.broadcast(x, SIZE - 1),
        "rows": gradbus.allgather(x[:2]),
        "cut": gradbus.reducescatter(x, op=gradbus.Sum),
        "turned": gradbus.alltoall(x + jnp.arange(SIZE, dtype=x.dtype)[:, None]),
    }


def check_operations(run):
    """``run``: operations, or the same under jax.jit."""
    got = run(jnp.full((SIZE, 3), 2.0 * RANK + 3))
    check(got["mean"], np.full((SIZE, 3), 2 * MEAN + 3))
    check(got["sum"]["a"], np.full((SIZE, 3), TOTAL + 1.5 * SIZE))
    check(got["sum"]["b"].astype(jnp.float32), np.full((SIZE, 3), TOTAL + 1.5 * SIZE))
    assert got["sum"]["b"].dtype == jnp.bfloat16 and got["max"].dtype == jnp.int32
    check(got["max"], np.full((SIZE, 3), 2 * SIZE + 1))
    check(got["any"], np.full((SIZE, 3), SIZE > 1))
    check(got["last"], np.full((SIZE, 3), 2 * SIZE + 1))
    check(got["rows"], np.repeat(2 * np.arange(SIZE) + 3, min(2, SIZE))[:, None] * np.ones((1, 3)))
    check(got["cut"], np.full((1, 3), 2 * TOTAL + 3 * SIZE))
    check(got["turned"], (2 * np.arange(SIZE) + 3 + RANK)[:, None] * np.ones((1, 3)))


def check_gradients():
    """Of sum(rank * operation(x)): each is a collective of what comes back."""
    x = jnp.ones((SIZE, 2))
    for wrap in (lambda f: f, jax.jit):
        check(jax.grad(wrap(lambda x: (RANK * gradbus.allreduce(x, op=gradbus.Sum)).sum()))(x),
              TOTAL * np.ones((SIZE, 2)))  # fmt: skip
        check(jax.grad(wrap(lambda x: (RANK * gradbus.allreduce(x)).sum()))(x), MEAN * np.ones((SIZE, 2)))
        check(jax.grad(wrap(lambda x: (RANK * gradbus.broadcast(x, 1)).sum()))(x),
              (TOTAL if RANK == 1 else 0) * np.ones((SIZE, 2)))  # fmt: skip
        check(jax.grad(wrap(lambda x: (RANK * gradbus.allgather(x)).sum()))(x), TOTAL * np.ones((SIZE, 2)))
        check(jax.grad(wrap(lambda x: (RANK * gradbus.reducescatter(x, op=gradbus.Sum)).sum()))(x),
              np.arange(SIZE)[:, None] * np.ones((1, 2)))  # fmt: skip
        for operation in (gradbus.allreduce, gradbus.broadcast):  # integers have no gradient
            mixed = lambda x: (RANK * operation({"n": jnp.arange(3), "x": x})["x"]).sum()  # noqa: B023, E731
            expected = MEAN if operation is gradbus.allreduce else TOTAL * (RANK == 0)
            check(jax.grad(wrap(mixed))(x), expected * np.ones((SIZE, 2)))


def check_gradients_of_gradients():
    """Of the sum over ranks of operation(x) ** 3, and twice of what comes out, by ``weight``, which is x on a rank."""
    weight, weights, shape = RANK + 1, TOTAL + SIZE, (SIZE, 2)
    ones = np.ones(shape)
    is_root = RANK == SIZE - 1

    def of_sum(scale, copies):
        """y = scale * sum(x), which ``copies`` ranks have."""
        y = scale * weights
        return 3 * copies * scale * y**2, 6 * weights * copies * scale**2 * y, 6 * weights**2 * copies * scale**3

    own = (3 * weight**2, 6 * weight**2, 6 * weight**2)  # of x ** 3
    cases = (
        (lambda x: gradbus.allreduce(x, op=gradbus.Sum), of_sum(1, SIZE)),
        (lambda x: gradbus.allreduce({"x": x, "n": jnp.arange(3)})["x"], of_sum(1 / SIZE, SIZE)),
        (lambda x: gradbus.broadcast({"x": x, "n": jnp.arange(3)}, SIZE - 1)["x"], [SIZE * is_root * g for g in own]),
        (gradbus.allgather, [SIZE * g for g in own]),
        (lambda x: gradbus.reducescatter(x, op=gradbus.Sum), of_sum(1, 1)),
        (gradbus.reducescatter, of_sum(1 / SIZE, 1)),
        (gradbus.alltoall, own),
    )
    x = jnp.full(shape, float(weight))
    for operation, expected in cases:
        first = jax.grad(lambda x: (operation(x) ** 3).sum())  # noqa: B023
        second = jax.grad(lambda x: (weight * first(x)).sum())  # noqa: B023
        third = jax.grad(lambda x: (weight * second(x)).sum())  # noqa: B023
        for wrap in (lambda f: f, jax.jit):
            for gradient, value in zip((first, second, third), expected):
                check(wrap(gradient)(x), value * ones)
    for wrap in (lambda f: f, jax.jit):
        hessian = wrap(jax.jacrev(jax.jacrev(lambda x: (gradbus.allreduce(x, op=gradbus.Sum) ** 2).sum())))
        check(hessian(jnp.ones(3)), 2 * SIZE**2 * np.eye(3))


def mapped():
    """How many pieces of shared memory this process has."""
    return pathlib.Path("/proc/self/maps").read_text().count("memfd:gradbus")


def check_unnamed():
    """Outside of jax.jit, unnamed operations keep no shared memory, and results stay on their arrays' devices."""
    on_devices = [jax.device_put(jnp.ones(2), device) for device in jax.devices()]
    for got in (gradbus.allreduce(on_devices), gradbus.broadcast(on_devices)):
        assert [array.sharding for array in got] == [array.sharding for array in on_devices]
    outside = jnp.ones(2)  # exchanged each time that the function runs
    assert "gradbus_operation" in str(jax.make_jaxpr(lambda: gradbus.allgather(outside))())
    before = 0
    for number in range(12):
        before = mapped() if number == 4 else before
        for operation in (gradbus.allreduce, gradbus.broadcast, gradbus.reducescatter, gradbus.alltoall):
            jax.grad(lambda x: operation(x).sum())(jnp.ones((SIZE, 70)))  # noqa: B023
        gradbus.allreduce({"a": jnp.ones(70), "b": jnp.ones(71)})
        jax.grad(lambda x: gradbus.allgather(x).sum())(jnp.ones(70 * SIZE))
    assert mapped() == before


def check_order():
    """Ranks whose programs start independent operations in opposite orders do not wait for each other for ever."""
    names = [f"order/{number}" for number in range(12)]

    @jax.jit
    def run(x):
        order = names if RANK % 2 else names[::-1]
        started = {name: gradbus.allreduce(x, name=name, op=gradbus.Sum) for name in order}
        return [started[name] for name in names]

    for got in run(jnp.full(50_000, float(RANK))):
        check(got[:2], [TOTAL, TOTAL])
    again = jax.jit(lambda x: jax.lax.fori_loop(0, 5, lambda _, v: gradbus.allreduce(v, "loop", gradbus.Sum), x))
    check(again(jnp.ones(2)), np.full(2, float(SIZE) ** 5))


def check_optimizer():
    """Three steps of SGD with momentum on gradients rank * p: the formula of one process with the mean."""
    optimizer = gradbus.distributed(optax.sgd(0.5, momentum=0.9))
    parameters = {"w": jnp.full((40, 30), float(RANK + 1)), "h": jnp.full(5, 2.0, jnp.bfloat16), "none": jnp.zeros(0)}
    parameters = gradbus.broadcast_parameters(parameters)
    state = optimizer.init(parameters)

    @jax.jit
    def step(parameters, state):
        updates, state = optimizer.update(jax.tree.map(lambda p: p * RANK, parameters), state, parameters)
        return optax.apply_updates(parameters, updates), state

    w, momentum = 1.0, 0.0
    for _ in range(3):
        parameters, state = step(parameters, state)
        momentum = 0.9 * momentum + w * MEAN
        w -= 0.5 * momentum
    np.testing.assert_allclose(parameters["w"], np.full((40, 30), w), rtol=1e-5)
    assert parameters["h"].dtype == jnp.bfloat16
    total = gradbus.exchange_gradients({"a": np.float32(RANK) * jnp.ones(3)}, "own", gradbus.Sum)
    check(total["a"], np.full(3, TOTAL))


def check_transformations():
    """jax.vmap and jax.checkpoint around operations, inside and outside jax.jit."""
    x = jnp.arange(6.0).reshape(3, 2) + RANK
    rows = jnp.arange(3.0 * SIZE).reshape(3, SIZE) + RANK
    one = np.arange(3.0 * SIZE).reshape(3, SIZE)
    for wrap in (lambda f: f, jax.jit):
        check(wrap(jax.vmap(lambda r: gradbus.allreduce(r, op=gradbus.Sum)))(x), SIZE * (x - RANK) + TOTAL)
        check(wrap(jax.vmap(lambda r: gradbus.broadcast(r, SIZE - 1)))(x), x - RANK + SIZE - 1)
        joined = wrap(jax.vmap(gradbus.allgather))(x)
        check(joined, np.concatenate([x - RANK + rank for rank in range(SIZE)], 1))
        cut = wrap(jax.vmap(lambda r: gradbus.reducescatter(r, op=gradbus.Sum)))(rows)
        check(cut, (SIZE * one + TOTAL)[:, RANK : RANK + 1])
        check(wrap(jax.vmap(gradbus.alltoall))(rows), np.stack([one[:, RANK] + rank for rank in range(SIZE)], 1))
        each = np.stack([gradbus.allreduce(np.asarray(row), op=gradbus.Adasum) for row in x])
        combined = wrap(jax.vmap(lambda r: gradbus.allreduce(r, op=gradbus.Adasum)))(x)
        np.testing.assert_allclose(combined, each, rtol=1e-5)
        squares = jax.checkpoint(lambda w: (gradbus.allreduce(w * (RANK + 1), op=gradbus.Sum) ** 2).sum())
        check(wrap(jax.grad(squares))(jnp.ones(3)), np.full(3, SIZE * (SIZE + 1) * SIZE * (RANK + 1)))
    models = jnp.arange(3.0)[:, None] * jnp.ones(4) * RANK
    got = jax.jit(jax.vmap(lambda g: gradbus.exchange_gradients({"a": g, "b": jnp.ones(2)}, "several")))(models)
    check(got["a"], np.arange(3.0)[:, None] * np.full(4, MEAN))
    check(got["b"], np.ones((3, 2)))


def check_exchanges():
    """One name with other settings is another exchange. An exchange outlives the process sets of other ranks."""
    given = {"a": np.float32(RANK) * jnp.ones((30, 2))}
    for options, expected in (({"op": gradbus.Sum}, TOTAL), ({}, MEAN), ({"op": gradbus.Sum}, TOTAL)):
        check(gradbus.exchange_gradients(given, "settings", **options)["a"], np.full((30, 2), expected))
    first = gradbus.add_process_set([0])
    if first.included():
        check(gradbus.exchange_gradients(given, "first", process_set=first)["a"], np.zeros((30, 2)))
    gradbus.remove_process_set(first)
    check(gradbus.exchange_gradients(given, "settings")["a"], np.full((30, 2), MEAN))


class Unreadable:
    """An array whose computation failed."""

    def __array__(self, dtype=None, copy=None):
        raise FloatingPointError


def check_unreadable():
    """A gradient that rank 0 cannot read starts nothing. A step that fails between two tensors is the last one."""
    one = np.ones(1, np.float32)
    of = [Gradient("a", (1,), "float32"), Gradient("b", (1,), "float32")]
    exchange = GradientExchange(of, "unreadable", Settings(bucket_bytes=4))
    results = [np.empty(1, np.float32), np.empty(1, np.float32)]
    for number, given in enumerate(([Unreadable(), one], [one, Unreadable()])):
        if RANK == 0:
            with pytest.raises(FloatingPointError):
                exchange.run(given, results)
        exchange.run([one * (10 * number + RANK), one * RANK], results)
        check(results, [[10 * number + MEAN], [MEAN]])
    second = exchange._buckets[1].views[0][0]
    given = [np.ones(2) if number == second else one for number in range(2)]
    for error, words in ((ValueError, "broadcast"), (gradbus.GradbusError, "GB-O905.*ValueError.*new optimizer")):
        with pytest.raises(error, match=words):
            exchange.run(given, results)
    GradientExchange(of, "afterwards", Settings(bucket_bytes=4)).run([one * RANK, one], results)
    check(results, [[MEAN], [1]])


def check_small_floats():
    """They travel under jax.jit, too."""
    for kind in (jnp.float8_e4m3fn, jnp.float8_e5m2):
        x = jnp.full((SIZE, 2), RANK + 1, kind)
        got = jax.jit(lambda x: (gradbus.broadcast(x, 1), gradbus.alltoall(x), gradbus.allgather(x[0])))(x)
        turned = np.repeat(np.arange(1, SIZE + 1), 2)
        for one, expected in zip(got, (np.full((SIZE, 2), 2), turned.reshape(SIZE, 2), turned)):
            assert one.dtype == kind
            check(one.astype(jnp.float32), expected)


def check_refusals():
    """One line each, with the next step."""
    mesh = jax.make_mesh((2,), ("devices",), axis_types=(jax.sharding.AxisType.Auto,))
    sharded = jax.device_put(jnp.ones(4), jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("devices")))
    check(gradbus.allreduce(sharded), np.ones(4))
    for error, words, call in (
        (gradbus.GradbusError, "is no optimizer of optax", lambda: gradbus.distributed(3)),
        (gradbus.GradbusError, "Max has no gradient",
         lambda: jax.grad(lambda x: gradbus.allreduce(x, op=gradbus.Max).sum())(jnp.ones(2))),
        (gradbus.GradbusError, "under jax.jit", lambda: jax.jit(gradbus.broadcast_parameters)(jnp.ones(2))),
        (gradbus.GradbusError, "is a scalar", lambda: gradbus.reducescatter(jnp.ones(()))),
        (gradbus.GradbusError, "dtype int32", lambda: gradbus.exchange_gradients([jnp.ones(2, jnp.int32)], "ints")),
        (gradbus.GradbusError, "programs for 2 devices", lambda: jax.jit(gradbus.allreduce)(sharded)),
        (gradbus.GradbusError, "int4 under jax.jit", lambda: jax.jit(gradbus.broadcast)(jnp.ones(2, jnp.int4))),
        (jax.errors.JaxRuntimeError, "GB-",
         lambda: jax.jit(lambda x: gradbus.allreduce(x, name="differ"))(jnp.ones(2 + RANK)).block_until_ready()),
    ):  # fmt: skip
        with pytest.raises(error, match=words) as raised:
            call()
        assert "\n" not in str(raised.value).split("\n---")[0] and " | next: " in str(raised.value), str(raised.value)


check_operations(operations)
check_operations(jax.jit(operations))
check_gradients()
check_gradients_of_gradients()
check_unnamed()
check_order()
check_optimizer()
check_transformations()
check_exchanges()
check_unreadable()
check_small_floats()
check_refusals()
gradbus.barrier()
print("ok")

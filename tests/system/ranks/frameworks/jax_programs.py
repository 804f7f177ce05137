"""Operations of gradbus.jax in jitted functions that a program calls twice, and in the control flow of JAX."""

import gradbus.jax as gradbus
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gradbus.jax import _programs
from jax.experimental import serialize_executable

gradbus.init(op_timeout=30)
RANK, SIZE = gradbus.rank(), gradbus.size()
TOTAL = SIZE * (SIZE + 1) / 2
ONES = np.ones(3)
X = jnp.full(3, RANK + 1.0)  # whose sum is TOTAL
COUNT = 8


def total(x, name=None):
    return gradbus.allreduce(x, name, gradbus.Sum)


inner = jax.jit(total)
inner_named = jax.jit(lambda x: total(x, "named"))
inner_scan = jax.jit(lambda x: jax.lax.scan(lambda v, _: (total(v), None), x, None, length=2)[0])


def same(got, expected):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), got, expected)


def check_inner_functions():
    """Each call has its own name. Ranks return results in opposite orders, so XLA orders the calls differently."""
    large = jnp.full(200_000, RANK + 1.0)
    for function, scale in ((inner, 1), (inner_named, 1), (inner_scan, SIZE)):
        same(jax.jit(lambda x: function(function(x)))(X), TOTAL * SIZE * scale**2 * ONES)  # noqa: B023
        same(jax.jit(lambda x: (function(x), function(2 * x)))(X), (TOTAL * scale * ONES, 2 * TOTAL * scale * ONES))  # noqa: B023

    def many(x):
        results = [inner(x * number) for number in range(COUNT)]
        results = results[::-1] if RANK % 2 else results
        return results, [jnp.sin(result) @ jnp.ones(result.size) for result in results]

    got = jax.jit(many)(large)[0]
    same([one[0] for one in (got[::-1] if RANK % 2 else got)], [TOTAL * number for number in range(COUNT)])
    same(jax.jit(jax.grad(lambda x: (inner(x) * inner(2 * x)).sum()))(X), 4 * TOTAL * SIZE * ONES)
    same(jax.jit(jax.hessian(lambda x: (inner(x) * inner(2 * x)).sum()))(X), 4 * SIZE**2 * np.eye(3))


def check_compiled_ahead():
    """One lowered function may be compiled twice, and loaded from bytes."""
    lowered = jax.jit(lambda x: inner(x) + inner(3 * x)).lower(X)
    options = {"xla_llvm_disable_expensive_passes": True}
    compiled = lowered.compile(options)
    loaded = serialize_executable.deserialize_and_load(*serialize_executable.serialize(compiled))
    for run in (lowered.compile(), compiled, loaded):
        same(run(X), 4 * TOTAL * ONES)


def check_shared(monkeypatch):
    """A JAX that shares lowered functions nevertheless: no wrong result, but an error."""
    monkeypatch.setattr(_programs, "_CACHES", ("of another JAX",))
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"calls several times.* \| next: remove the inner jax.jit"):
        jax.jit(lambda x: inner(x) + inner(3 * x))(X)
    same(jax.jit(lambda x: total(x) + total(3 * x))(X), 4 * TOTAL * ONES)


def check_one_device_mesh():
    """In a shard_map, too, no call takes the other's name: JAX copies its context there."""
    mesh = jax.make_mesh((1,), ("devices",), axis_types=(jax.sharding.AxisType.Auto,))
    axes = jax.sharding.PartitionSpec()
    mapped = jax.jit(jax.shard_map(total, mesh=mesh, in_specs=axes, out_specs=axes, check_vma=False))
    same(jax.jit(mapped)(X), TOTAL * ONES)
    try:
        got = jax.jit(lambda x: (mapped(x), mapped(2 * x)))(X)
    except jax.errors.JaxRuntimeError as error:
        assert "calls several times" in str(error)
    else:
        same(got, (TOTAL * ONES, 2 * TOTAL * ONES))


def check_control_flow(wrap):
    def scanned(x, **options):
        return jax.lax.scan(lambda v, factor: (total(v * factor), v), x, jnp.ones(3), **options)[0]

    same(wrap(scanned)(X), TOTAL * SIZE**2 * ONES)
    same(wrap(jax.grad(lambda x: scanned(x).sum()))(X), SIZE**3 * ONES)
    same(wrap(lambda x: jax.jvp(scanned, (x,), (2 * x,)))(X), (TOTAL * SIZE**2 * ONES, 2 * TOTAL * SIZE**2 * ONES))
    each = wrap(lambda x: jax.lax.scan(lambda _, v: (None, total(x * v)), None, jnp.arange(5.0), unroll=5)[1])
    same(each(X), TOTAL * np.arange(5)[:, None] * ONES)
    same(wrap(lambda x: jax.lax.map(lambda v: total(x * v), jnp.arange(4.0)))(X), TOTAL * np.arange(4)[:, None] * ONES)
    looped = lambda x: jax.lax.fori_loop(0, 3, lambda _, v: total(v), x)  # noqa: E731
    same(wrap(jax.value_and_grad(lambda x: looped(x)[0]))(X), (TOTAL * SIZE**2, SIZE**3 * np.eye(3)[0]))
    until = lambda x: jax.lax.while_loop(lambda v: total(v)[0] < 100 * SIZE, lambda v: 2 * total(v), x)  # noqa: E731
    value = TOTAL / SIZE
    while value * SIZE < 100 * SIZE:
        value = 2 * (TOTAL if value == TOTAL / SIZE else value * SIZE)
    same(wrap(until)(X), value * ONES)
    choose = lambda x, p: jax.lax.cond(p, total, lambda x: total(2 * x), x).sum()  # noqa: E731
    for chosen, factor in ((True, 1), (False, 2)):
        same(wrap(jax.value_and_grad(choose))(X, chosen), (3 * factor * TOTAL, factor * SIZE * ONES))
    both = wrap(jax.vmap(lambda p: jax.lax.cond(p, total, lambda x: -x, X)))  # vmap computes both branches
    same(both(jnp.array([True, RANK == 0])), np.stack([TOTAL * ONES, (TOTAL if RANK == 0 else -RANK - 1) * ONES]))
    same(wrap(jax.vmap(scanned))(jnp.stack([X, 5 * X])), TOTAL * SIZE**2 * np.array([[1], [5]]) * ONES)
    cube = jax.checkpoint(lambda x: (inner(x) ** 3).sum())
    same(wrap(jax.grad(cube))(X), 3 * TOTAL**2 * SIZE * ONES)
    same(wrap(jax.hessian(cube))(X), 6 * TOTAL * SIZE**2 * np.eye(3))
    same(wrap(lambda x: jax.jvp(cube, (x,), (x,)))(X), (3 * TOTAL**3, 9 * TOTAL**3))


check_inner_functions()
check_compiled_ahead()
with pytest.MonkeyPatch.context() as patch:
    check_shared(patch)
check_one_device_mesh()
for wrap in (lambda function: function, jax.jit):
    check_control_flow(wrap)
gradbus.barrier()
print("ok")

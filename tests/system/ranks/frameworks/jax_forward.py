"""Forward mode through gradbus.jax, against NumPy: each rank computes what all ranks send from their numbers."""

import gradbus.jax as gradbus
import jax
import jax.numpy as jnp
import numpy as np
import pytest

gradbus.init(op_timeout=30)
RANK, SIZE = gradbus.rank(), gradbus.size()
ONE = np.arange(1.0, 2 * SIZE + 1).reshape(SIZE, 2)
RANKS = range(SIZE)


def turned(arrays):
    """Row r of each."""
    return [np.stack([array[rank] for array in arrays]) for rank in RANKS]


# An operation, and the same in NumPy: what each rank gets for the arrays of all.
OPERATIONS = {
    "sum": (lambda x: gradbus.allreduce(x, op=gradbus.Sum), lambda arrays: [sum(arrays)] * SIZE),
    "mean": (gradbus.allreduce, lambda arrays: [sum(arrays) / SIZE] * SIZE),
    "scaled": (lambda x: gradbus.allreduce(x, None, gradbus.Sum, 4.0, 0.5), lambda arrays: [2 * sum(arrays)] * SIZE),
    "tree": (lambda x: gradbus.allreduce({"x": x, "none": None, "n": jnp.arange(3)})["x"],
             lambda arrays: [sum(arrays) / SIZE] * SIZE),
    "broadcast": (lambda x: gradbus.broadcast(x, 1), lambda arrays: [arrays[1]] * SIZE),
    "allgather": (gradbus.allgather, lambda arrays: [np.concatenate(arrays)] * SIZE),
    "reducescatter": (gradbus.reducescatter, lambda arrays: [sum(arrays)[rank : rank + 1] / SIZE for rank in RANKS]),
    "alltoall": (gradbus.alltoall, turned),
    "exchange": (lambda x: gradbus.exchange_gradients({"x": x}, "exchange")["x"],
                 lambda arrays: [sum(arrays) / SIZE] * SIZE),
}  # fmt: skip


def same(got, expected):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), got, expected)


def check_forward(operation, reference, wrap):
    """Of operation(x) ** 3, at x = (rank + 1) ONE, along cos(ONE) (rank + 2)."""
    x, along = jnp.asarray(ONE * (RANK + 1)), jnp.asarray(np.cos(ONE) * (RANK + 2))
    y = reference([ONE * (rank + 1) for rank in RANKS])[RANK]
    change = reference([np.cos(ONE) * (rank + 2) for rank in RANKS])[RANK]
    cube = lambda x: operation(x) ** 3  # noqa: E731
    first = lambda x, given: jax.jvp(cube, (x,), (given,))  # noqa: E731
    same(wrap(first)(x, along), (y**3, 3 * y**2 * change))
    second = lambda x, given: jax.jvp(lambda x: first(x, given)[1], (x,), (given,))[1]  # noqa: E731
    same(wrap(second)(x, along), 6 * y * change**2)
    linear = wrap(lambda x, given: jax.linearize(cube, x)[1](given))
    same(linear(x, along), 3 * y**2 * change)
    # Column (i, j) is the operation on that basis vector: all ranks change together.
    basis = np.eye(2 * SIZE).reshape(2 * SIZE, SIZE, 2)
    columns = [reference([one] * SIZE)[RANK] for one in basis]
    same(wrap(jax.jacfwd(operation))(x), np.stack(columns, -1).reshape(*y.shape, SIZE, 2))
    total = lambda x: cube(x).sum()  # noqa: E731
    product = wrap(lambda x, given: jax.grad(lambda x: (jax.grad(total)(x) * given).sum())(x))(x, along)
    same(wrap(lambda x, given: jax.jvp(jax.grad(total), (x,), (given,))[1])(x, along), product)
    same(wrap(lambda x, given: jax.grad(lambda x: jax.jvp(total, (x,), (given,))[1])(x))(x, along), product)


def check_hessian(wrap):
    x = jnp.ones(3)
    hessian = wrap(jax.hessian(lambda x: (gradbus.allreduce(x, op=gradbus.Sum) ** 2).sum()))
    same(hessian(x), 2 * SIZE**2 * np.eye(3))
    hessian = wrap(jax.hessian(lambda x: (gradbus.broadcast(x, 1) ** 2).sum()))
    same(hessian(x), 2 * SIZE * (RANK == 1) * np.eye(3))


def check_undefined(wrap):
    """A maximum has no derivative. It is an error where one is used, and only there."""
    x = jnp.full(3, RANK + 1.0)
    largest = lambda x: gradbus.allreduce(x, op=gradbus.Max)  # noqa: E731
    for use in (jax.grad(lambda x: largest(x).sum()), lambda x: jax.jvp(largest, (x,), (x,)), jax.jacfwd(largest)):
        with pytest.raises(gradbus.GradbusError, match=r"Max has no gradient \| next: "):
            wrap(use)(x)
    with_logs = jax.value_and_grad(lambda x: (gradbus.allreduce(x).sum(), largest(x)), has_aux=True)
    mean = (SIZE + 1) / 2
    same(wrap(with_logs)(x), ((3 * mean, np.full(3, SIZE)), np.ones(3)))
    rows = jnp.ones((SIZE + 1, 2))
    with pytest.raises(gradbus.GradbusError, match=f"no gradient for {SIZE + 1} rows on {SIZE} ranks"):
        wrap(jax.grad(lambda x: gradbus.reducescatter(x).sum()))(rows)
    own = np.ones((1 + (RANK == 0), 2))
    same(wrap(lambda x: jax.jvp(gradbus.reducescatter, (x,), (2 * x,)))(rows), (own, 2 * own))


for wrap in (lambda function: function, jax.jit):
    for operation, reference in OPERATIONS.values():
        check_forward(operation, reference, wrap)
    check_hessian(wrap)
    check_undefined(wrap)
gradbus.barrier()
print("ok")

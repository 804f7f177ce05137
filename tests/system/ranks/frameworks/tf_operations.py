"""gradbus.tensorflow against formulas, eager and under tf.function; sparse gradients, tf.compat.v1, errors."""

import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import gradbus.tensorflow as gradbus
import numpy as np
import pytest
import tensorflow as tf

gradbus.init(op_timeout=30)
RANK, SIZE = gradbus.rank(), gradbus.size()
TOTAL = sum(range(SIZE))
MEAN = TOTAL / SIZE


def check(got, expected):
    """Equal, in shape too."""
    np.testing.assert_array_equal(np.asarray(got, np.float64), np.asarray(expected, np.float64))


def operations(x):
    """All of them on a tensor whose elements are 2 ranks + 3, and that has SIZE rows."""
    ones = tf.ones([SIZE], tf.int32)
    slices = tf.IndexedSlices(x[:1], tf.constant([RANK], tf.int64), tf.constant([SIZE, 3], tf.int64))
    return {
        "mean": gradbus.allreduce(x),
        "group": gradbus.grouped_allreduce([x, tf.cast(x, tf.bfloat16)], op=gradbus.Sum, prescale_factor=0.5),
        "max": gradbus.allreduce(tf.cast(x, tf.int32), op=gradbus.Max),
        "last": gradbus.broadcast(x, SIZE - 1),
        "rows": gradbus.allgather(x[: RANK + 1]),
        "cut": gradbus.reducescatter(x, op=gradbus.Sum),
        "turned": gradbus.alltoall(x + tf.cast(tf.range(SIZE), tf.float32)[:, None]),
        "split": gradbus.alltoall(x, splits=ones)[1],
        "sparse": tf.convert_to_tensor(gradbus.allreduce(slices)),
    }


def check_operations(run):
    """``run``: operations, or the same under tf.function."""
    got = run(tf.fill([SIZE, 3], 2.0 * RANK + 3))
    check(got["mean"], np.full((SIZE, 3), 2 * MEAN + 3))
    for tensor in got["group"]:
        check(tf.cast(tensor, tf.float32), np.full((SIZE, 3), TOTAL + 1.5 * SIZE))
    assert got["group"][1].dtype == tf.bfloat16 and got["max"].dtype == tf.int32
    check(got["max"], np.full((SIZE, 3), 2 * SIZE + 1))
    check(got["last"], np.full((SIZE, 3), 2 * SIZE + 1))
    check(got["rows"], np.repeat(2 * np.arange(SIZE) + 3, np.arange(SIZE) + 1)[:, None] * np.ones((1, 3)))
    check(got["cut"], np.full((1, 3), 2 * TOTAL + 3 * SIZE))
    check(got["turned"], (2 * np.arange(SIZE) + 3 + RANK)[:, None] * np.ones((1, 3)))
    check(got["split"], np.ones(SIZE))
    np.testing.assert_allclose(got["sparse"], (2 * np.arange(SIZE) + 3)[:, None] / SIZE * np.ones((1, 3)), rtol=1e-6)


def check_gradients(wrap):
    """Of sum(rank * operation(x)): each is a collective of what comes back."""
    x = tf.ones((SIZE, 2))

    def gradient(operation):
        @wrap
        def run(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = RANK * tf.reduce_sum(operation(x))
            return tape.gradient(loss, x)

        return run(x)

    check(gradient(lambda x: gradbus.allreduce(x, op=gradbus.Sum)), TOTAL * np.ones((SIZE, 2)))
    check(gradient(gradbus.allreduce), MEAN * np.ones((SIZE, 2)))
    check(gradient(lambda x: gradbus.broadcast(x, 1)), (TOTAL if RANK == 1 else 0) * np.ones((SIZE, 2)))
    check(gradient(gradbus.allgather), TOTAL * np.ones((SIZE, 2)))
    check(gradient(lambda x: gradbus.reducescatter(x, op=gradbus.Sum)), np.arange(SIZE)[:, None] * np.ones((1, 2)))
    check(gradient(gradbus.alltoall), np.arange(SIZE)[:, None] * np.ones((1, 2)))
    first = np.eye(SIZE)[:, :1] * np.ones((1, 2))  # tf.gather() sends tf.IndexedSlices back
    check(gradient(lambda x: tf.gather(gradbus.allgather(x), [0, 0])), 2 * TOTAL * first * (RANK == 0))
    check(gradient(lambda x: tf.gather(gradbus.broadcast(x, 1), [0])), TOTAL * first * (RANK == 1))


def check_retraced():
    """Rank 0 alone traces a function again. Its operations keep their names."""

    @tf.function
    def run(x):
        mean = gradbus.allreduce(tf.reduce_mean(x))
        mean = tf.cond(mean > 0, lambda: gradbus.allreduce(mean + RANK), lambda: mean)
        return gradbus.allreduce(mean * RANK, op=gradbus.Sum)

    for rows in (4, 3 if RANK == 0 else 4, 4):
        check(run(tf.ones(rows)), (1 + MEAN) * TOTAL)


def check_slices(wrap):
    """Factors apply to the rows."""

    @wrap
    def run():
        slices = tf.IndexedSlices(tf.fill([1, 2], 1.0 + RANK), tf.constant([RANK]), tf.constant([SIZE, 2]))
        return tf.convert_to_tensor(gradbus.allreduce(slices, None, gradbus.Sum, 0.5, 3.0))

    check(run(), 1.5 * np.arange(1, SIZE + 1)[:, None] * np.ones((1, 2)))


def check_tape(wrap, sparse_as_dense):
    """Dense, sparse, half and missing gradients: the formula of one process with the mean."""
    table, half = tf.Variable(tf.ones((SIZE, 2))), tf.Variable(tf.ones(3, tf.bfloat16))
    weight, unused = tf.Variable(tf.fill([5], float(RANK))), tf.Variable(1.0)
    gradbus.broadcast_variables([weight, half], root_rank=1)
    check(weight, np.ones(5))

    @wrap
    def run():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, [RANK, RANK])) + RANK * tf.reduce_sum(weight**2)
            loss += tf.cast(RANK, tf.float32) * tf.cast(tf.reduce_sum(half), tf.float32)
        tape = gradbus.DistributedGradientTape(tape, sparse_as_dense=sparse_as_dense)
        return tape.gradient(loss, [table, weight, half, unused])

    got = run()
    assert isinstance(got[0], tf.IndexedSlices) != sparse_as_dense and got[3] is None
    np.testing.assert_allclose(tf.convert_to_tensor(got[0]), np.full((SIZE, 2), 2 / SIZE), rtol=1e-6)
    check(got[1], np.full(5, 2 * MEAN))
    check(tf.cast(got[2], tf.float32), np.full(3, MEAN))


def check_sessions():
    """MonitoredTrainingSession with the hook and an optimizer of tf.compat.v1."""
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        weight = v1.get_variable("weight", initializer=tf.fill([4], float(RANK + 1)), use_resource=True)
        optimizer = gradbus.DistributedOptimizer(v1.train.GradientDescentOptimizer(0.5))
        step = optimizer.minimize(RANK * tf.reduce_sum(weight))
        hook = gradbus.BroadcastGlobalVariablesHook(SIZE - 1)
        with v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
            check(session.run(weight), np.full(4, SIZE))
            session.run(step)
            check(session.run(weight), np.full(4, SIZE - 0.5 * MEAN))


def check_refusals():
    """One line each, with the next step."""
    differ = tf.function(lambda: gradbus.allreduce(tf.ones(2 + RANK), name="differ"))
    rows = tf.IndexedSlices(tf.ones((1, 2), tf.int32), tf.constant([0]))
    compiled = tf.function(lambda: gradbus.allreduce(tf.ones(2)), jit_compile=True)
    for error, words, call in (
        (gradbus.GradbusError, "is no tape", lambda: gradbus.DistributedGradientTape(3)),
        (gradbus.GradbusError, "is no optimizer of Keras", lambda: gradbus.DistributedOptimizer(3)),
        (gradbus.GradbusError, "is a scalar", lambda: gradbus.reducescatter(tf.ones(()))),
        (gradbus.GradbusError, "cannot be reduced", lambda: gradbus.allreduce(tf.constant("a"))),
        (gradbus.GradbusError, "IndexedSlices of int32", lambda: gradbus.allreduce(rows, postscale_factor=2.0)),
        (gradbus.GradbusError, "rows travel as they are", lambda: gradbus.allreduce(rows, compression="fp16")),
        (Exception, "GB-O900 .* \\| next: .*jit_compile=False", compiled),  # tf.function changes the class
        (tf.errors.OpError, "GB-O902 .*differ.* \\| next: ", differ),
    ):  # fmt: skip
        with pytest.raises(error, match=words):
            call()


check_operations(operations)
check_operations(tf.function(operations))
for wrap in (lambda function: function, tf.function):
    check_gradients(wrap)
    check_tape(wrap, False)
    check_tape(wrap, True)
    check_slices(wrap)
check_retraced()
check_sessions()
check_refusals()
gradbus.barrier()
print("ok")

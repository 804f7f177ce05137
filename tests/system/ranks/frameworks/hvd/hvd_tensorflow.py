"""gradbus.horovod.tensorflow: Horovod's names, arguments, results and gradients against formulas."""

import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import gradbus.horovod.tensorflow as hvd
import numpy as np
import pytest
import tensorflow as tf
from gradbus.horovod.tensorflow import functions, mpi_ops, sync_batch_norm, util

PAIR, FIRST = hvd.ProcessSet([1, 0]), hvd.ProcessSet([0])
hvd.init(process_sets=[PAIR, FIRST])
hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
TOTAL = sum(range(SIZE))
MEAN = TOTAL / SIZE


def check(got, expected, tolerance=0):
    """Equal, in shape too."""
    np.testing.assert_allclose(np.asarray(got, np.float64), np.asarray(expected, np.float64), rtol=tolerance)


def plain(function):
    return function


def check_modules():
    """Names that scripts import."""
    assert util._executing_eagerly() and hvd._executing_eagerly() and not tf.function(hvd._executing_eagerly)()
    variables = [tf.Variable(1.0), [tf.Variable(2.0)]]
    again = hvd.refs_to_vars(hvd.vars_to_refs(variables))
    assert again[0] is variables[0] and again[1][0] is variables[1][0]
    calls = []
    remembered = hvd._cache(lambda value: calls.append(value) or len(calls))
    assert [remembered(3), remembered(3), remembered(4)] == [1, 1, 2]
    assert functions.broadcast_object(RANK) == 0 and sync_batch_norm.SyncBatchNormalization
    assert mpi_ops._basics._get_process_set_ids_and_ranks() == {0: list(range(SIZE)), 1: [0, 1], 2: [0]}
    assert mpi_ops.check_num_rank_power_of_2(3) is None and hvd.split_list([1, 2, 3], 2) == [[1, 2], [3]]
    assert not hvd.gpu_available("no_such_framework")


def check_results(wrap):
    """Eager or under tf.function."""
    x = tf.fill([SIZE, 2], float(RANK))
    ones = np.ones((SIZE, 2))

    @wrap
    def run(x):
        slices = tf.IndexedSlices(x[:1], tf.constant([RANK], tf.int64), tf.constant([SIZE, 2], tf.int64))
        return {
            "mean": hvd.allreduce(x),
            "sum": hvd.allreduce(x, average=False, prescale_factor=2.0, postscale_factor=0.5, ignore_name_scope=True),
            "product": hvd.allreduce(x + 1, op=hvd.Product, name="product"),
            "least": hvd.allreduce(x, op=hvd.Min),
            "zero": hvd.allreduce(x + 1, op=hvd.Sum, prescale_factor=0.0),
            "zeros": hvd.grouped_reducescatter([x + 1], postscale_factor=0.0)[0],
            "half": hvd.allreduce(x + 1 / 7, op=hvd.Sum, compression=hvd.Compression.fp16),
            "group": hvd.grouped_allreduce([x, tf.cast(x, tf.int32), slices], op=hvd.Sum),
            "scaled": tf.convert_to_tensor(hvd.allreduce(slices, op=hvd.Sum, prescale_factor=2.0)),
            "rows": hvd.allgather(x[: RANK + 1], name="rows"),
            "both": hvd.grouped_allgather([x[:1], tf.cast(x[:2], tf.float64)]),
            "root": hvd.broadcast(x, SIZE - 1),
            "cut": hvd.reducescatter(x, op=hvd.Sum),
            "cuts": hvd.grouped_reducescatter([x, 2 * x], postscale_factor=2.0),
            "turned": hvd.alltoall(x),
            "split": hvd.alltoall(tf.ones([TOTAL + 2]), splits=tf.range(SIZE)),
            "questions": [hvd.rank_op(), hvd.size_op(), hvd.local_rank_op(), hvd.local_size_op()],
        }

    got = run(x)
    check(got["mean"], MEAN * ones)
    check(got["sum"], TOTAL * ones)
    check(got["product"], np.prod(np.arange(1, SIZE + 1)) * ones)
    check(got["least"], 0 * ones)
    check(got["zero"], 0 * ones)
    check(got["zeros"], [[0, 0]])
    assert got["half"].dtype == tf.float32
    check(got["half"], np.float16(sum(np.float16(rank + 1 / 7) for rank in range(SIZE))) * ones, 2e-3)
    assert float(got["half"][0, 0]) == float(np.float16(got["half"][0, 0])) != TOTAL + SIZE / 7
    dense, whole, sparse = got["group"]
    check(dense, TOTAL * ones)
    check(whole, TOTAL * ones)
    assert whole.dtype == tf.int32 and isinstance(sparse, tf.IndexedSlices)
    check(tf.convert_to_tensor(sparse), np.arange(SIZE)[:, None] * ones)
    check(got["scaled"], 2 * np.arange(SIZE)[:, None] * ones)
    check(got["rows"], np.repeat(np.arange(SIZE), np.arange(SIZE) + 1)[:, None] * np.ones((1, 2)))
    check(got["both"][0], np.arange(SIZE)[:, None] * ones)
    assert got["both"][1].dtype == tf.float64 and got["both"][1].shape == (2 * SIZE, 2)
    check(got["root"], (SIZE - 1) * ones)
    check(got["cut"], np.full((1, 2), TOTAL))
    check(got["cuts"][1], np.full((1, 2), 4 * MEAN))
    check(got["turned"], np.arange(SIZE)[:, None] * ones)
    result, received = got["split"]
    assert received.dtype == tf.int32
    check(received, np.full(SIZE, RANK))
    check(result, np.ones(RANK * SIZE))
    check(got["questions"], [RANK, SIZE, hvd.local_rank(), hvd.local_size()])


def check_gradients():
    """Of sum(rank * operation(x)). Horovod's are means where the true ones are sums, and the other way round."""
    x = tf.ones((SIZE, 2))

    def gradient(operation):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = RANK * tf.reduce_sum(operation(x))
        return tape.gradient(loss, x)

    ones = np.ones((SIZE, 2))
    check(gradient(hvd.allreduce), MEAN * ones)
    check(gradient(lambda x: hvd.allreduce(x, op=hvd.Sum)), TOTAL * ones)
    check(gradient(hvd.allgather), MEAN * ones, 1e-6)
    check(gradient(lambda x: hvd.broadcast(x, 1)), (MEAN if RANK == 1 else 0) * ones, 1e-6)
    check(gradient(lambda x: hvd.reducescatter(x, op=hvd.Sum)), SIZE * np.arange(SIZE)[:, None] * np.ones((1, 2)))
    check(gradient(hvd.reducescatter), np.arange(SIZE)[:, None] * np.ones((1, 2)), 1e-6)
    check(gradient(lambda x: hvd.alltoall(x, splits=[1] * SIZE)[0]), np.arange(SIZE)[:, None] * np.ones((1, 2)))


def check_process_sets():
    """Ranks are in ascending order. Ranks outside of a set keep their gradients."""
    assert (hvd.global_process_set.process_set_id, PAIR.process_set_id, FIRST.process_set_id) == (0, 1, 2)
    weight = tf.Variable([1.0, 2.0])
    for members, mean in ((PAIR, 1.5), (FIRST, 1.0)):
        check(hvd.size_op(members.process_set_id), members.size())
        check(hvd.process_set_included_op(members.process_set_id), members.included())
        with tf.GradientTape() as tape:
            loss = (RANK + 1) * tf.reduce_sum(weight)
        got = hvd.DistributedGradientTape(tape, process_set=members).gradient(loss, weight)
        check(got, np.full(2, mean if members.included() else RANK + 1))
    if PAIR.included():
        check(hvd.allreduce(tf.constant([float(RANK)]), op=hvd.Sum, process_set=PAIR), [1.0])
        assert hvd.allgather_object(RANK, process_set=PAIR) == [0, 1]


def check_training():
    """Variables, objects, the tape with local variables and rows, sessions of tf.compat.v1."""
    table, weight, own = tf.Variable(tf.ones((SIZE, 2))), tf.Variable([float(RANK)] * 3), tf.Variable([float(RANK)])
    hvd.broadcast_variables([weight], root_rank=1, inplace=True)
    check(weight, np.ones(3))
    (value,) = hvd.broadcast_([tf.Variable([float(RANK)])], root_rank=1)
    check(value, [1.0])
    assert hvd.broadcast_object({"rank": RANK}, root_rank=1) == {"rank": 1}
    assert hvd.broadcast_object_fn(root_rank=1, name="fn")(RANK) == 1
    assert hvd.allgather_object(RANK) == list(range(SIZE))
    for sparse_as_dense in (False, True):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, [RANK])) + RANK * tf.reduce_sum(weight) + tf.reduce_sum(own**2)
        tape = hvd.DistributedGradientTape(tape, sparse_as_dense=sparse_as_dense, gradient_predivide_factor=2.0)
        tape.register_local_source(own)
        rows, dense, local = tape.gradient(loss, [table, weight, own], use_generic_names=True)
        assert isinstance(rows, tf.IndexedSlices) != sparse_as_dense
        check(tf.convert_to_tensor(rows), np.full((SIZE, 2), 1 / SIZE), 1e-6)
        check(dense, np.full(3, MEAN))
        check(local, [2 * RANK / SIZE], 1e-6)
    for op, expected in ((hvd.Average, MEAN), (hvd.Sum, TOTAL), (hvd.Average, MEAN)):
        with tf.GradientTape() as tape:
            loss = RANK * tf.reduce_sum(weight)
        check(hvd.DistributedGradientTape(tape, op=op).gradient(loss, weight), np.full(3, expected))
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        variable = v1.get_variable("weight", initializer=tf.fill([4], float(RANK + 1)), use_resource=True)
        optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(0.5), op=hvd.Sum)
        step = optimizer.minimize(RANK * tf.reduce_sum(variable))
        with v1.train.MonitoredTrainingSession(hooks=[hvd.BroadcastGlobalVariablesHook(SIZE - 1)]) as session:
            session.run(step)
            check(session.run(variable), np.full(4, SIZE - 0.5 * TOTAL))


def check_local_variables_in_sessions():
    """An optimizer of tf.compat.v1 leaves gradients of local variables on their rank, outside of its set, too."""
    v1 = tf.compat.v1
    for members, divisor in ((hvd.global_process_set, SIZE), (FIRST, 1)):
        with tf.Graph().as_default(), v1.Session() as session:
            own, shared = (v1.get_variable(name, initializer=tf.ones(2), use_resource=True) for name in "ab")
            optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0), process_set=members)
            optimizer.register_local_var(own)
            step = optimizer.minimize(RANK * tf.reduce_sum(own + shared))
            session.run(v1.global_variables_initializer())
            session.run(step)
            check(session.run(own), np.full(2, 1 - RANK / divisor))
            check(session.run(shared), np.full(2, 1 - (MEAN if members is hvd.global_process_set else RANK)))


def check_order_in_sessions():
    """TensorFlow runs these in any order on as many threads as there are cores, unless they wait for each other."""
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        tables = [v1.get_variable(f"t{i}", initializer=tf.zeros([SIZE, 2]), use_resource=True) for i in range(24)]
        loss = tf.add_n([tf.reduce_sum(tf.gather(table, [RANK])) * i for i, table in enumerate(tables)])
        optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0), op=hvd.Sum)
        pairs = optimizer.compute_gradients(loss)
        assert all(isinstance(gradient, tf.IndexedSlices) for gradient, _ in pairs)
        step = optimizer.apply_gradients(pairs)
        (value,) = hvd.broadcast_([v1.get_variable("own", initializer=float(RANK), use_resource=True)], 1)
        joined = hvd.grouped_allgather([tf.fill([1], float(i)) for i in range(24)])
        cut = hvd.grouped_reducescatter([tf.fill([SIZE], float(i)) for i in range(24)])
        constant = tf.ones([2])
        (back,) = tf.gradients(RANK * tf.reduce_sum(hvd.broadcast(constant, 1)), [constant])
        with v1.Session() as session:
            check(session.run(back), np.full(2, MEAN if RANK == 1 else 0))
            session.run(v1.global_variables_initializer())
            session.run(step)
            check(session.run(value), 1)
            for i, table in enumerate(session.run(tables)):
                check(table, np.full((SIZE, 2), -i))
            for i, (rows, own) in enumerate(zip(session.run(joined), session.run(cut))):
                check(rows, np.full(SIZE, i))
                check(own, [i])


def check_refusals():
    """One line each, with the next step."""
    v1 = tf.compat.v1.train.GradientDescentOptimizer(0.5)
    for words, call in (
        ("op=2 ", lambda: hvd.allreduce(tf.ones(2), op=2)),
        ("both given", lambda: hvd.allreduce(tf.ones(2), average=True, op=hvd.Sum)),
        ("no compressor", lambda: hvd.allreduce(tf.ones(2), compression="fp16")),
        ("is no mean or sum", lambda: hvd.reducescatter(tf.ones(2), op=hvd.Max)),
        ("is no tape", lambda: hvd.DistributedGradientTape(3)),
        ("needs a mean", lambda: hvd.DistributedOptimizer(v1, op=hvd.Sum, gradient_predivide_factor=2.0)),
        ("hvd.Adasum", lambda: hvd.DistributedOptimizer(v1, op=hvd.Adasum)),
        ("needs an optimizer of Keras", lambda: hvd.DistributedOptimizer(v1, backward_passes_per_step=2)),
        ("groups=-1", lambda: hvd.DistributedGradientTape(tf.GradientTape(), groups=-1)),
        ("outside of a graph", lambda: hvd.broadcast_global_variables(0)),
        ("process set 99", lambda: hvd.size_op(99)),
        ("cannot add zeros", hvd.join),
        ("is no path", lambda: hvd.start_timeline(3)),
    ):  # fmt: skip
        with pytest.raises(hvd.HorovodInternalError, match=f"GB-O900.*{words}.* \\| next: "):
            call()


check_modules()
check_results(plain)
check_results(tf.function)
check_gradients()
check_process_sets()
check_training()
check_local_variables_in_sessions()
check_order_in_sessions()
check_refusals()
hvd.shutdown()
assert not hvd.is_initialized()
print("ok")

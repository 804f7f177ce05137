"""gradbus.horovod.tensorflow: what scripts and tests for Horovod rely on beside results: errors, dtypes, free order."""

import os
import pickle

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ.pop("TF_NUM_INTEROP_THREADS", None)

import gradbus.horovod.tensorflow as hvd
import numpy as np
import pytest
import tensorflow as tf

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()


def check_many_operations():
    """More independent operations in one run than the machine has cores, in another order on each rank. Comes first:
    TensorFlow makes its threads once."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        made = [hvd.allreduce(tf.fill([3], float(number))) for number in range(40)]
        for number, value in enumerate(session.run(made)):
            np.testing.assert_array_equal(value, np.full(3, number))


def check_errors():
    """They are errors of Gradbus and of TensorFlow, also in tf.function. In a session they are TensorFlow's own."""
    shape, dtype = [2 + RANK, 3], tf.int32 if RANK else tf.float32
    mismatches = (
        lambda: hvd.allreduce(tf.ones(shape), name="shape"),
        lambda: hvd.allreduce(tf.ones(2, dtype), name="dtype"),
        lambda: hvd.allgather(tf.ones([2, 3 + RANK]), name="rows"),
        lambda: hvd.broadcast(tf.ones(2), RANK, name="root"),
        lambda: hvd.alltoall(tf.ones(SIZE, dtype), name="turn"),
        lambda: hvd.reducescatter(tf.ones(shape), name="cut"),
    )
    wrong = (lambda: hvd.alltoall(tf.ones(SIZE + 1)), lambda: hvd.alltoall(tf.ones(2), tf.fill([SIZE], 5)))
    for calls, kind, in_graphs in (
        (mismatches, tf.errors.FailedPreconditionError, tf.errors.UnknownError),
        (wrong, tf.errors.InvalidArgumentError, tf.errors.InvalidArgumentError),
    ):
        for call in calls:
            with pytest.raises(kind, match=r"^GB-.* \| next: ") as caught:
                call()
            assert isinstance(caught.value, hvd.HorovodInternalError)
            assert caught.value.id and caught.value.message == str(caught.value) and caught.value.code
            again = pickle.loads(pickle.dumps(caught.value))
            assert type(again) is type(caught.value) and str(again) == str(caught.value)
            with pytest.raises(kind, match=r"GB-.* \| next: ") as in_function:
                tf.function(call)()
            error = in_function.value
            assert isinstance(error, hvd.HorovodInternalError) and isinstance(error, in_graphs)
            assert (error.id, error.code, error.what[:7]) == (caught.value.id, caught.value.code, caught.value.what[:7])
            again = pickle.loads(pickle.dumps(error))
            assert type(again) is type(error) and str(again) == str(error) == error.message
    with pytest.raises(tf.errors.OpError) as caught:
        tf.function(lambda: tf.debugging.assert_equal(RANK, SIZE))()
    assert not isinstance(caught.value, hvd.HorovodInternalError)


def check_errors_of_arguments():
    """The same before anything is sent, and while TensorFlow traces a function."""
    sets = [hvd.add_process_set([rank]) for rank in range(SIZE)]
    other = sets[(RANK + 1) % SIZE]
    x = tf.ones([SIZE, 2])
    for call in (
        lambda: hvd.allreduce(x, op=99),
        lambda: hvd.broadcast(x, SIZE),
        lambda: hvd.allreduce(x, process_set=other),
        lambda: hvd.grouped_allreduce([x], process_set=other),
        lambda: hvd.allgather(x, process_set=other),
        lambda: hvd.grouped_allgather([x], process_set=other),
        lambda: hvd.alltoall(x, process_set=other),
        lambda: hvd.reducescatter(x, process_set=other),
        lambda: hvd.grouped_reducescatter([x], process_set=other),
    ):
        for run in (call, tf.function(call)):
            with pytest.raises(tf.errors.InvalidArgumentError, match=r"GB-O900 .* \| next: ") as caught:
                run()
            assert isinstance(caught.value, hvd.HorovodInternalError) and caught.value.id == "O900"
            again = pickle.loads(pickle.dumps(caught.value))
            assert type(again) is type(caught.value) and str(again) == str(caught.value)
    for one in sets:
        hvd.remove_process_set(one)


def check_rows_of_other_operations():
    """Rows may be on some ranks only, so they have no largest element."""
    slices = tf.IndexedSlices(tf.ones([1, 3]), tf.constant([RANK]))
    for op in (hvd.Min, hvd.Max, hvd.Product, hvd.Adasum):
        for call in (lambda op=op: hvd.allreduce(slices, op=op), lambda op=op: hvd.grouped_allreduce([slices], op=op)):
            with pytest.raises(NotImplementedError, match=r"tf.IndexedSlices.* \| next: ") as caught:
                call()
            assert isinstance(caught.value, hvd.HorovodInternalError)


def check_mean_of_whole_numbers():
    """A mean of rows has fractions, so that their sum is right; that of dense tensors has the tensors' dtype."""
    for dtype in (tf.uint8, tf.int32, tf.int64):
        slices = tf.IndexedSlices(tf.ones([2, 3], dtype), tf.constant([0, RANK]))
        for made, dense in (
            hvd.grouped_allreduce([slices, tf.ones(2, dtype)]),
            tf.function(lambda one=slices: hvd.grouped_allreduce([one, tf.ones(2, one.dtype)]))(),
        ):
            total = np.ones((SIZE, 3)) / SIZE
            total[0] += 1
            summed = tf.math.unsorted_segment_sum(made.values, made.indices, SIZE)
            np.testing.assert_allclose(summed, total, rtol=1e-6)
            assert made.dtype.is_floating and dense.dtype == dtype
    single = tf.IndexedSlices(tf.ones([1, 3]), tf.constant([RANK]))
    assert hvd.allreduce(single).dtype == tf.float32


def check_rows_in_sessions():
    """More tf.IndexedSlices in one group than cores, beside dense tensors."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        ones = [tf.IndexedSlices(tf.fill([1, 2], float(i)), tf.constant([RANK])) for i in range(12)]
        made = hvd.grouped_allreduce([*ones, *(tf.fill([2], float(i)) for i in range(12))], op=hvd.Sum)
        values = session.run([one.values if isinstance(one, tf.IndexedSlices) else one for one in made])
        for i in range(12):
            np.testing.assert_array_equal(values[i], np.full((SIZE, 2), i))
            np.testing.assert_array_equal(values[12 + i], np.full(2, SIZE * i))


check_many_operations()
check_errors()
check_errors_of_arguments()
check_rows_of_other_operations()
check_mean_of_whole_numbers()
check_rows_in_sessions()
hvd.barrier()
print("ok")

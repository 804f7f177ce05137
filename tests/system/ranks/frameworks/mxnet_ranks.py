"""gradbus.mxnet and gradbus.horovod.mxnet: operations, parameters, trainers, refusals."""

import sys

import gradbus.horovod.mxnet as hvd
import gradbus.mxnet as gradbus
import mxnet as mx
import numpy as np
import pytest
from gradbus.horovod.mxnet import compression, functions, mpi_ops

hvd.init()
gradbus.init()  # changes nothing
RANK, SIZE = gradbus.rank(), gradbus.size()
TOTAL = sum(range(SIZE))
MEAN = TOTAL / SIZE


def check_operations():
    given = mx.nd.array([RANK, 2.0 * RANK])
    total = gradbus.allreduce(given, op=gradbus.Sum)
    assert isinstance(total, mx.nd.NDArray) and total.asnumpy().tolist() == [TOTAL, 2 * TOTAL]
    assert given.asnumpy().tolist() == [RANK, 2 * RANK]
    numbers = mx.np.array([[RANK]], dtype="int64")
    assert type(gradbus.allgather(numbers)) is mx.np.ndarray and gradbus.allgather(numbers).dtype == np.int64
    assert gradbus.allgather(numbers).tolist() == [[rank] for rank in range(SIZE)]
    half = mx.nd.array([1 / 3], dtype="float16")
    assert gradbus.allreduce(half, op=gradbus.Max).dtype == np.float16
    assert gradbus.broadcast(given, 1).asnumpy().tolist() == [1, 2]
    whole = mx.nd.array(np.arange(2 * SIZE), dtype="int32")
    assert gradbus.reducescatter(whole, op=gradbus.Sum).asnumpy().tolist() == [2 * RANK * SIZE, (2 * RANK + 1) * SIZE]
    matrix = mx.nd.array([[1.0, RANK], [3.0, 4.0]])
    assert gradbus.allreduce_(matrix) is matrix and matrix.asnumpy().tolist() == [[1, MEAN], [3, 4]]


def check_horovod():
    given = mx.nd.array([RANK])
    assert hvd.allreduce(given).asnumpy().tolist() == [MEAN]
    assert hvd.allreduce(given, average=False, priority=3).asnumpy().tolist() == [TOTAL]
    assert [one.asscalar() for one in hvd.grouped_allreduce_([given, given * 2], op=hvd.Sum)] == [TOTAL, 2 * TOTAL]
    rows, counts = hvd.alltoall(mx.nd.array(np.full(SIZE + 1, RANK)), splits=[1] * SIZE)
    assert rows.asnumpy().tolist() == list(range(SIZE)) and counts.asnumpy().tolist() == [1] * SIZE
    array = mx.nd.array([1] * SIZE, dtype="int32")
    assert hvd.alltoall(mx.nd.array(np.full(SIZE, RANK)), array)[0].asnumpy().tolist() == list(range(SIZE))
    with pytest.raises(ValueError, match=r"splits=array.* \| next: ") as wrong:
        hvd.alltoall(mx.nd.array(np.full(SIZE, RANK)), array.astype("float32"))
    assert "\n" not in str(wrong.value)
    whole = mx.nd.array(np.arange(2.0 * SIZE + 1) + RANK)  # the first rank has one row more
    first = 2 * RANK + (RANK > 0)
    mine = (np.arange(2.0 * SIZE + 1)[first : first + 2 + (RANK == 0)]) * SIZE + SIZE * (SIZE - 1) / 2
    assert hvd.reducescatter(whole, op=hvd.Sum).asnumpy().tolist() == mine.tolist()
    two = hvd.grouped_reducescatter([whole, whole * 2])
    assert [np.allclose(one.asnumpy(), mine * factor / SIZE) for factor, one in zip((1, 2), two)] == [True, True]
    assert [one.asnumpy().tolist() for one in hvd.grouped_allgather([given, given * 2])] == [
        hvd.allgather(given).asnumpy().tolist(), (hvd.allgather(given) * 2).asnumpy().tolist()]  # fmt: skip
    assert hvd.allreduce(mx.nd.array([RANK + 1.0]), op=hvd.Max).asscalar() == SIZE and hvd.nccl_built() == 0
    small, dtype = hvd.Compression.fp16.compress(given)
    assert small.dtype == np.float16 and hvd.Compression.fp16.decompress(small, dtype).dtype == given.dtype
    with pytest.raises(ValueError, match="hvd.Average or hvd.Sum"):
        hvd.reducescatter(whole, op=hvd.Max)
    hvd.broadcast_(given, 1)
    assert given.asscalar() == TOTAL
    two = hvd.grouped_allreduce(tensors=[mx.nd.array([RANK]), mx.nd.array([2 * RANK])], average=False)
    assert [one.asscalar() for one in two] == [TOTAL, 2 * TOTAL]
    assert mpi_ops.allreduce is hvd.allreduce and functions.broadcast_object({1: RANK}, 1) == {1: 1}
    assert compression.FP16Compressor is hvd.Compression.fp16


def net_of(value=1.0):
    """y = w x, whose gradient is x."""
    net = mx.gluon.nn.Dense(1, use_bias=False, in_units=1)
    net.initialize(mx.initializer.Constant(value))
    return net


class Quarters(hvd.Compression.none):
    """A compressor of a script: gradients travel divided by 4, with another shape."""

    @staticmethod
    def compress(tensor):
        return tensor.reshape((-1,)) / 4, tensor.shape

    @staticmethod
    def decompress(tensor, ctx):
        return tensor.reshape(ctx) * 4


def stepped(trainer, net, batch_size=1):
    with mx.autograd.record():
        made = net(mx.nd.array([[RANK]]))
    made.backward()
    trainer.step(batch_size)
    return float(net.weight.data().asscalar())


def check_trainers():
    """Rank r's gradient is r. A step subtracts half of the mean or the sum."""
    for make, options, change in (
        (gradbus.DistributedTrainer, {}, MEAN),
        (gradbus.DistributedTrainer, {"op": gradbus.Sum}, TOTAL),
        (hvd.DistributedTrainer, {"compression": hvd.Compression.fp16, "gradient_predivide_factor": 2.0}, MEAN),
        (hvd.DistributedTrainer, {"compression": Quarters}, MEAN),
        (hvd.DistributedTrainer, {"compression": Quarters(), "op": hvd.Sum}, TOTAL),
    ):
        net = net_of()
        trainer = make(net.collect_params(), "sgd", {"learning_rate": 0.5}, **options)
        assert stepped(trainer, net) == 1 - 0.5 * change
        assert stepped(trainer, net, 2) == 1 - 0.75 * change
    first = hvd.add_process_set([0])  # other ranks step alone
    net = net_of()
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.5}, process_set=first)
    assert stepped(trainer, net) == 1 - 0.5 * RANK
    hvd.remove_process_set(first)
    net = net_of()
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.5})
    assert stepped(trainer, net) == 1 - 0.5 * MEAN


def check_parameters():
    net = net_of(RANK + 5)
    gradbus.broadcast_parameters(net.collect_params(), root_rank=1)
    assert net.weight.data().asscalar() == 6
    arrays = {"one": mx.nd.array([RANK])}
    hvd.broadcast_parameters(arrays, 1, prefix="mine")
    assert arrays["one"].asscalar() == 1


def check_optimizer():
    """Of Module: rank r's gradient is r. An update subtracts half of the mean, times rescale_grad."""
    optimizer = hvd.DistributedOptimizer(mx.optimizer.SGD(learning_rate=0.5, rescale_grad=0.5))
    assert isinstance(optimizer, hvd.DistributedOptimizer) and isinstance(optimizer, mx.optimizer.Optimizer)
    assert optimizer.rescale_grad == 0.5 and optimizer.learning_rate == 0.5
    weight, gradient = mx.nd.array([1.0]), mx.nd.array([RANK])
    optimizer.update(0, weight, gradient, optimizer.create_state(0, weight))
    assert weight.asscalar() == 1 - 0.25 * MEAN and gradient.asscalar() == MEAN
    optimizer.rescale_grad = 1.0  # as Module sets it
    optimizer.set_learning_rate(1.0)
    weights = [mx.nd.array([1.0]), mx.nd.array([2.0], dtype="float16")]
    gradients = [mx.nd.array([RANK]), mx.nd.array([RANK], dtype="float16")]
    for index in range(2):
        state = optimizer.create_state_multi_precision(index, weights[index])
        optimizer.update_multi_precision([index], [weights[index]], [gradients[index]], [state])
    assert [one.asscalar() for one in weights] == [1 - MEAN, 2 - MEAN]
    first = hvd.add_process_set([0])
    alone = hvd.DistributedOptimizer(mx.optimizer.SGD(learning_rate=0.5), process_set=first)
    weight = mx.nd.array([1.0])
    alone.update(0, weight, mx.nd.array([RANK]), None)
    assert weight.asscalar() == 1 - 0.5 * RANK
    hvd.remove_process_set(first)
    net = net_of()
    with pytest.warns(UserWarning, match="pass a plain optimizer"):
        trainer = hvd.DistributedTrainer(net.collect_params(), optimizer)
    assert isinstance(trainer, mx.gluon.Trainer) and stepped(trainer, net) == 1 - MEAN


def check_module():
    """A Module of one weight, with data of this rank. All ranks end with one weight."""
    symbol = mx.sym.LinearRegressionOutput(
        mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=1, no_bias=True), mx.sym.var("label"))
    module = mx.mod.Module(symbol, ["data"], ["label"])
    module.bind([("data", (1, 1))], [("label", (1, 1))])
    module.init_params(mx.initializer.Constant(1.0))
    module.init_optimizer(None, hvd.DistributedOptimizer(mx.optimizer.SGD(learning_rate=0.5, rescale_grad=1.0)))
    batch = mx.io.DataBatch([mx.nd.array([[1.0]])], [mx.nd.array([[float(RANK)]])])
    module.forward_backward(batch)
    module.update()
    (weight,) = module.get_params()[0].values()
    assert weight.asscalar() == 1 - 0.5 * (1 - MEAN)


def check_deferred_parameters():
    """Layers without shapes get the root's values in the first forward pass; what a rank loads later is its own."""
    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.Dense(2), mx.gluon.nn.Dense(1, in_units=2))
    net.initialize(mx.initializer.Constant(RANK + 5))
    hvd.broadcast_parameters(net.collect_params(), root_rank=1)
    assert (net[1].weight.data().asnumpy() == 6).all()
    net(mx.nd.ones((1, 3)))
    assert (net[0].weight.data().asnumpy() == 6).all() and net[0].weight.shape == (2, 3)
    if RANK == 0:
        net.initialize(mx.initializer.Constant(9), force_reinit=True)


def check_refusals():
    deferred = mx.gluon.nn.Dense(1)
    deferred.initialize()
    for call, words in (
        (lambda: gradbus.broadcast_parameters(deferred.collect_params()), "has no shape yet"),
        (lambda: gradbus.broadcast_parameters([1]), "a list"),
        (lambda: gradbus.DistributedTrainer(net_of().collect_params(), "sgd", op=gradbus.Max), "op="),
    ):
        with pytest.raises(ValueError, match=words + r".* \| next: "):
            call()
    words = mx.gluon.nn.Embedding(3, 1, sparse_grad=True)
    words.initialize()
    trainer = gradbus.DistributedTrainer(words.collect_params(), "sgd")
    with mx.autograd.record():
        made = words(mx.nd.array([1]))
    made.backward()
    with pytest.raises(ValueError, match="row_sparse gradient"):
        trainer.step(1)


for check in (check_operations, check_horovod, check_trainers, check_optimizer,
              check_module, check_parameters, check_deferred_parameters, check_refusals):
    check()
gradbus.shutdown()
sys.stdout.write("ok\n")

"""Trains the digits classifier with an MXNet script for Horovod, of which one line has changed.

    gradbus run -np 4 --agents 2 -- python examples/horovod/mxnet_digits.py     # four ranks
    python examples/horovod/mxnet_digits.py                                     # one process, same batches
"""

import pathlib
import sys

import gradbus.horovod.mxnet as hvd  # was: import horovod.mxnet as hvd
import mxnet as mx

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from common import plain_digits  # noqa: E402


def build_net(arguments, rank: int) -> mx.gluon.nn.Sequential:
    """Other ranks than 0 begin with zeros: the broadcast repairs that."""
    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.Dense(arguments.hidden, "tanh", in_units=64), mx.gluon.nn.Dense(10, in_units=arguments.hidden))
    net.initialize()
    first = plain_digits.initial_parameters(arguments, rank)
    for number, layer in enumerate(net, 1):
        layer.weight.set_data(mx.nd.array(first[f"w{number}"].T))
        layer.bias.set_data(mx.nd.array(first[f"b{number}"]))
    return net


def parameters_of(net) -> dict:
    """By the names of plain_digits."""
    named = {}
    for number, layer in enumerate(net, 1):
        named[f"w{number}"] = layer.weight.data().asnumpy().T.copy()
        named[f"b{number}"] = layer.bias.data().asnumpy()
    return named


def main() -> None:
    """One rank."""
    arguments = plain_digits.parse_arguments("Horovod's interface for MXNet")
    hvd.init()
    net = build_net(arguments, hvd.rank())
    parameters = net.collect_params()
    hvd.broadcast_parameters(parameters, root_rank=0)
    trainer = hvd.DistributedTrainer(parameters, mx.optimizer.SGD(learning_rate=arguments.lr, momentum=0.9))
    loss_of = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    for images, labels in plain_digits.batches(arguments, hvd.rank(), hvd.size()):
        with mx.autograd.record():
            loss = loss_of(net(mx.nd.array(images)), mx.nd.array(labels))
        loss.backward()
        trainer.step(len(images))
    plain_digits.report(arguments, hvd, parameters_of(net))
    hvd.shutdown()


if __name__ == "__main__":
    main()

"""Trains the digits classifier with MXNet's Gluon, data-parallel with Gradbus.

    gradbus run -np 4 --agents 2 -- python examples/mxnet/digits.py     # four ranks
    python examples/mxnet/digits.py                                     # one process, same batches
"""

import pathlib
import sys

import gradbus.mxnet as gradbus
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


def main() -> None:
    """One rank."""
    arguments = plain_digits.parse_arguments("MXNet")
    gradbus.init()
    net = build_net(arguments, gradbus.rank())
    gradbus.broadcast_parameters(net.collect_params())
    trainer = gradbus.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": arguments.lr, "momentum": 0.9})
    loss_of = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    for images, labels in plain_digits.batches(arguments, gradbus.rank(), gradbus.size()):
        with mx.autograd.record():
            loss = loss_of(net(mx.nd.array(images)), mx.nd.array(labels))
        loss.backward()
        trainer.step(len(images))
    trainer.flush()  # the same parameters on all ranks in any mode
    parameters = {}
    for number, layer in enumerate(net, 1):
        parameters[f"w{number}"] = layer.weight.data().asnumpy().T.copy()
        parameters[f"b{number}"] = layer.bias.data().asnumpy()
    plain_digits.report(arguments, gradbus, parameters)


if __name__ == "__main__":
    main()

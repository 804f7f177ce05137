"""Trains the digits classifier with a PyTorch script for Horovod, of which one line has changed.

    gradbus run -np 4 --agents 2 -- python examples/horovod/digits.py     # four ranks
    python examples/horovod/digits.py                                     # one process, same batches
"""

import pathlib
import sys

import gradbus.horovod.torch as hvd  # was: import horovod.torch as hvd
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from common import plain_digits, torch_digits  # noqa: E402


def main() -> None:
    """One rank."""
    arguments = plain_digits.parse_arguments("Horovod's interface")
    hvd.init()
    model = torch_digits.build_model(arguments, hvd.rank())
    optimizer = torch.optim.SGD(model.parameters(), lr=arguments.lr, momentum=0.9)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    for images, labels in plain_digits.batches(arguments, hvd.rank(), hvd.size()):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(torch.from_numpy(images)), torch.from_numpy(labels)).backward()
        optimizer.step()
    plain_digits.report(arguments, hvd, torch_digits.parameters_of(model))
    hvd.shutdown()


if __name__ == "__main__":
    main()

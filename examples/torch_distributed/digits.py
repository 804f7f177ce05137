"""Trains the digits classifier with DistributedDataParallel on the backend "gradbus" of torch.distributed.

    gradbus run -np 4 --agents 2 -- python examples/torch_distributed/digits.py     # four ranks
    torchrun --nproc-per-node 4 examples/torch_distributed/digits.py                # the same, with an agent that runs
    python examples/torch_distributed/digits.py                                     # one process, same batches

The job's compression applies (`gradbus run --compression`), because the model has the hook of Gradbus.
"""

import os
import pathlib
import sys

import gradbus.torch
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from common import plain_digits, torch_digits  # noqa: E402


class Group:
    """The process group, as the report wants it."""

    rank = staticmethod(dist.get_rank)
    size = staticmethod(dist.get_world_size)

    @staticmethod
    def allgather_object(value, name):
        """Every rank's value."""
        values = [None] * dist.get_world_size()
        dist.all_gather_object(values, value)
        return values


def main() -> None:
    """One rank."""
    arguments = plain_digits.parse_arguments("torch.distributed")
    for name, alone in (("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "0")):
        os.environ.setdefault(name, alone)  # without a launcher
    dist.init_process_group("gradbus")
    bare = torch_digits.build_model(arguments, dist.get_rank())
    model = DistributedDataParallel(bare)
    model.register_comm_hook(None, gradbus.torch.hook())
    optimizer = torch.optim.SGD(model.parameters(), lr=arguments.lr, momentum=0.9)
    for images, labels in plain_digits.batches(arguments, dist.get_rank(), dist.get_world_size()):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(torch.from_numpy(images)), torch.from_numpy(labels)).backward()
        optimizer.step()
    plain_digits.report(arguments, Group, torch_digits.parameters_of(bare))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

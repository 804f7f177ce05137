"""Options of the job that torch's own exchange of gradients ignores: `dist_options.py STORE OPTION`.

Rank 0 is warned of each once, and nobody is whose gradients follow the options.
"""

import sys
import warnings

import gradbus.torch as gradbus
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch_group import RANK, SIZE, init

OPTION = sys.argv[2]
IS_MODE = OPTION.startswith("mode")


def model():
    torch.manual_seed(1)
    return torch.nn.Linear(160, 200)


def steps(network, optimizer=None):
    """What the user reads in two steps."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            network(torch.ones(2, 160)).sum().backward()
            if optimizer is not None:
                optimizer.step()
    return [str(each.message) for each in caught if str(each.message).startswith("gradbus: ")]


def plain():
    return steps(DistributedDataParallel(model()))


def hooked():
    network = DistributedDataParallel(model())
    network.register_comm_hook(None, gradbus.hook())
    return steps(network)


def with_optimizer():
    """A group beside it, which sums something in backward(), too."""
    gradbus.init()
    network = model()
    network.weight.register_hook(lambda gradient: dist.all_reduce(gradient.clone()) and None)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    said = steps(network, gradbus.DistributedOptimizer(optimizer, network.named_parameters()))
    gradbus.shutdown()
    return said


def sharded():
    return steps(fully_shard(model(), mesh=dist.init_device_mesh("cpu", (SIZE,))))


DDP = ["DistributedDataParallel", "DistributedOptimizer" if IS_MODE else "register_comm_hook(None, gradbus.torch.hook"]
# The hook applies compression, and no mode. The text of a mode is the same with it and without.
CASES = [(with_optimizer, []), (hooked, [DDP] if IS_MODE else []), (plain, [] if IS_MODE else [DDP]), (plain, [])]
CASES += [(sharded, [["FSDP", "gradbus.torch.DistributedOptimizer"]])]
for number, (case, expected) in enumerate(CASES):
    init(part=str(number))
    said = case()
    assert len(said) == (len(expected) if RANK == 0 else 0), (case, said)
    for text, words in zip(said, expected):
        assert all(word in text for word in [f"{OPTION} has no effect on", " | next: ", *words]), text
    dist.destroy_process_group()
print("ok")

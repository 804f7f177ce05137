"""A rank of two that runs the Python blocks of a page: run_page.py PAGE FOLDER.

Blocks are pieces of a program. So each finds what the text before it takes for granted: a model, an optimizer, data.
"""

import os
import pathlib
import socket
import sys

import gradbus.torch as gradbus
import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from blocks import blocks_of  # noqa: E402

# What the text of a page says to do before its blocks.
WRAP = "optimizer = gradbus.DistributedOptimizer(optimizer, model.named_parameters(), mode={!r})\n"
STEPS = "for x, y in batches:\n optimizer.zero_grad(); loss(model(x), y).backward(); optimizer.step()\n"
BEFORE = {
    "hide-communication": WRAP.format("delayed:k=1"),
    "checkpoint-state": WRAP.format("ps:async") + STEPS,
}


class Net(torch.nn.Module):
    """A small model with an embedding."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(16, 8)
        self.linear = torch.nn.Linear(8, 1)

    def forward(self, x):
        """One number for each index."""
        return self.linear(self.embedding(x))


def batch(step):
    """Inputs and targets."""
    return torch.randint(16, (4,), generator=torch.Generator().manual_seed(step)), torch.ones(4, 1)


def names():
    """What blocks may use without saying where it comes from."""
    torch.manual_seed(1)
    model = Net()
    return {
        "torch": torch, "gradbus": gradbus, "Net": Net, "model": model, "batch": batch, "x": torch.ones(4),
        "batches": [batch(step) for step in range(3)], "loss": torch.nn.functional.mse_loss,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.01), "old_size": gradbus.size(),
        "__name__": "page",
    }  # fmt: skip


def tell_torch():
    """What `gradbus run` sets for torch.distributed."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = gradbus.broadcast_object(free.getsockname()[1], 0)
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(gradbus.rank()), WORLD_SIZE=str(gradbus.size())
    )


def main():
    """Runs the blocks in their order."""
    page = pathlib.Path(sys.argv[1])
    os.chdir(sys.argv[2])
    # As `gradbus run` does for torch.distributed.
    os.environ.update(RANK=os.environ["GRADBUS_RANK"], WORLD_SIZE=os.environ["GRADBUS_SIZE"], MASTER_ADDR="127.0.0.1")
    gradbus.init()
    for block in blocks_of(page):
        if block.language != "python" or block.reason:
            continue
        gradbus.barrier()  # files of the block before are there
        tell_torch()
        known = names()
        exec(BEFORE.get(page.stem, ""), known)
        exec(compile(block.code, f"{page.name}: {block.code.strip().splitlines()[0]}", "exec"), known)
    print("ok")


main()

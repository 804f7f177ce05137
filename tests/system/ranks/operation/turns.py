"""A rank that pushes to shards in turn with the other ranks: turns.py FOLDER STEPS. Then it waits for FOLDER/end.

Between two steps of a rank, each other rank makes one. So the staleness of each step is known.
"""

import pathlib
import sys
import time

import gradbus.torch as gradbus
import torch

FOLDER, STEPS = pathlib.Path(sys.argv[1]), int(sys.argv[2])

gradbus.init()
torch.manual_seed(1)
model = torch.nn.Linear(10, 10, bias=False)
optimizer = gradbus.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=1e-3), model.named_parameters(), mode="ps:async")  # fmt: skip
for _ in range(STEPS):
    for rank in range(gradbus.size()):
        if rank == gradbus.rank():
            optimizer.zero_grad()
            model(torch.randn(8, 10)).square().mean().backward()
            optimizer.step()
        gradbus.barrier()
(FOLDER / f"done-{gradbus.rank()}").touch()
deadline = time.monotonic() + 60
while not (FOLDER / "end").exists():
    assert time.monotonic() < deadline
    time.sleep(0.02)
gradbus.shutdown()
print("ok", flush=True)

"""A rank that trains on shards, and whose rank 1 has one gradient that is not finite."""

import gradbus.torch as gradbus
import torch

gradbus.init()
torch.manual_seed(1)
model = torch.nn.Linear(10, 10, bias=False)
optimizer = gradbus.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=1e-3), model.named_parameters(), mode="ps:async")  # fmt: skip
for step in range(4):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 10)).square().mean()
    (loss * float("nan") if (step, gradbus.rank()) == (2, 1) else loss).backward()
    optimizer.step()
gradbus.barrier()
gradbus.shutdown()
print("ok", flush=True)

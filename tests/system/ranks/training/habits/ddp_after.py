"""A rank: DDP takes the model of a DistributedOptimizer, as trainers do: `ddp_after.py FILE`. The error names it."""

import gradbus.torch as gradbus
import torch
import torch_group
from training_cases import mlp, sgd

torch.set_num_threads(1)
gradbus.init()
model = mlp()
optimizer = gradbus.DistributedOptimizer(sgd(model), model.named_parameters())
torch_group.init("gloo")
wrapped = torch.nn.parallel.DistributedDataParallel(model)
try:
    for _ in range(3):
        optimizer.zero_grad()
        wrapped(torch.ones(4, 6) * gradbus.rank()).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)  # uses gradients before step() does
        optimizer.step()
except gradbus.InvalidError as error:
    assert "is in a DistributedDataParallel, which averages" in str(error), error
else:
    raise AssertionError("gradients were averaged twice")
torch.distributed.destroy_process_group()
print("ok")

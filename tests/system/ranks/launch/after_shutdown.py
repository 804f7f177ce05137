"""A rank that reads gradients after shutdown(): the tensor, a detached one and NumPy's view, all of the same memory."""

import gc

import gradbus.torch as gradbus
import torch

gradbus.init()
RANK, SIZE = gradbus.rank(), gradbus.size()
model = torch.nn.Linear(500, 400)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
optimizer = gradbus.DistributedOptimizer(optimizer, model.named_parameters(), broadcast=True)
inputs = torch.arange(500.0).expand(2, 500) * (RANK + 1)
model(inputs).sum().backward()
wanted = (torch.arange(500.0) * (SIZE + 1)).expand(400, 500)  # 2 rows, and the mean of the ranks' factors

gradient = model.weight.grad
views = {"grad": gradient, "detached": gradient.detach(), "numpy": gradient.numpy(), "row": gradient[7:8]}
gradbus.barrier()
gradbus.shutdown()
del optimizer, gradient
gc.collect()
for _ in range(3):
    torch.randn(1 << 20)  # memory that was given back would be used again
for name, view in views.items():
    assert torch.equal(torch.as_tensor(view), wanted[: len(view)]), name
assert torch.equal(model.weight.grad, wanted)
print("ok")

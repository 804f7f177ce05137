"""A rank that trains a small model without haste until it is ended: slow_steps.py PAUSE_MS.

Its mode and codec are those of the environment, so each step shows in charts, timelines and metrics.
"""

import sys
import time

import gradbus.torch as gradbus
import torch

gradbus.init()
torch.manual_seed(gradbus.rank())
model = torch.nn.Sequential(torch.nn.Linear(64, 400), torch.nn.ReLU(), torch.nn.Linear(400, 1))
gradbus.broadcast_parameters(model, root_rank=0)
optimizer = gradbus.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.001), model.named_parameters())
while True:
    x = torch.randn(32, 64)
    optimizer.zero_grad()
    time.sleep(float(sys.argv[1]) / 1000 / (2 if gradbus.rank() == 0 else 1))  # rank 0 waits for the others
    torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
    optimizer.step()

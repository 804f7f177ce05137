"""A rank that trains a small model, for tests of traces: traced_training.py STEPS [MILLISECONDS_A_STEP [WIDTH]].

Prints the seconds of exposed communication that the optimizer counted.
"""

import sys
import time

import gradbus.torch as gradbus
import torch

gradbus.init()
torch.manual_seed(gradbus.rank())
width = int(sys.argv[3]) if len(sys.argv) > 3 else 128
model = torch.nn.Sequential()
model.add_module("first", torch.nn.Linear(64, width))
model.add_module("relu", torch.nn.ReLU())
model.add_module("second", torch.nn.Linear(width, 8))
gradbus.trace_layers(model)
optimizer = gradbus.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.01), named_parameters=model.named_parameters(), broadcast=True)
pause = float(sys.argv[2]) / 1000 if len(sys.argv) > 2 else 0
for _ in range(int(sys.argv[1])):
    optimizer.zero_grad()
    loss = model(torch.randn(32, 64)).square().mean()
    if gradbus.rank() == 1:
        time.sleep(pause)  # the other rank waits
    loss.backward()
    optimizer.step()
optimizer.flush()
print(f"exposed {optimizer.exposed_communication():.6f}", flush=True)
gradbus.shutdown()

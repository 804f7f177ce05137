"""A rank that asks for a schedule that it cannot have, and prints the error.

    wrong_schedule.py NAME         to DistributedOptimizer
    wrong_schedule.py NAME MODE    to change_schedule() of an optimizer in this mode
"""

import json
import sys

import gradbus.torch as gradbus
import torch

gradbus.init()
model = torch.nn.Linear(3, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
try:
    if len(sys.argv) > 2:
        gradbus.DistributedOptimizer(optimizer, mode=sys.argv[2]).change_schedule(sys.argv[1])
    else:
        gradbus.DistributedOptimizer(optimizer, schedule=sys.argv[1])
except gradbus.GradbusError as error:
    print(json.dumps({"error": type(error).__name__, "text": str(error)}), flush=True)
gradbus.shutdown()

"""A rank that calls gradbus.state() alone: `late_state.py FOLDER`. The errors name the calls."""

import pathlib
import sys
import time

import gradbus.torch as gradbus
import torch

done = pathlib.Path(sys.argv[1]) / "seen"
gradbus.init(op_timeout=2)
model = torch.nn.Linear(2, 2)
optimizer = gradbus.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
state = gradbus.state(optimizer)
saved = state.state_dict()
if gradbus.rank() == 0:
    for call in (state.state_dict, lambda: state.load_state_dict(saved)):
        try:
            call()
            raise AssertionError("rank 1 was not missed")
        except gradbus.TimeoutError as error:
            parts = ["GB-P110 STALLED: gradbus.state: ", "state_dict(): rank 0 waited", "rank 1", "call it on all"]
            assert all(part in str(error) for part in parts) and "\n" not in str(error), error
    done.touch()
ends = time.monotonic() + 30
while not done.exists() and time.monotonic() < ends:
    time.sleep(0.02)
print("ok")

"""A rank that makes STEPS steps between two files: steady.py FOLDER STEPS.

After its first steps it writes `warm` and waits for `go`. After the counted ones it writes `done` and waits for `end`.
"""

import pathlib
import sys
import time

import gradbus.torch as gradbus
import torch

FOLDER, STEPS = pathlib.Path(sys.argv[1]), int(sys.argv[2])


def tell_and_wait(said, wanted):
    gradbus.barrier()
    if gradbus.rank() == 0:
        (FOLDER / said).touch()
    deadline = time.monotonic() + 60
    while not (FOLDER / wanted).exists():
        assert time.monotonic() < deadline, wanted
        time.sleep(0.02)


gradbus.init()
torch.manual_seed(1)
model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(20)])
optimizer = gradbus.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=1e-3), model.named_parameters(), bucket_bytes=1, check_every=0)  # fmt: skip


def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()


train(5)
tell_and_wait("warm", "go")
train(STEPS)
tell_and_wait("done", "end")
gradbus.shutdown()
print("ok", flush=True)

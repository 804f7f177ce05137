"""A rank: a recording has the layers of the model in forward order, and the order of their gradients.

    record.py FILE [SCHEDULE]
"""

import json
import os
import pathlib
import sys

os.environ["GRADBUS_RECORD"] = sys.argv[1]

import gradbus.torch as gradbus  # noqa: E402
import torch  # noqa: E402
from gradbus.torch._tuning import measured  # noqa: E402
from torch import nn  # noqa: E402

measured.SMALL, measured.LARGE = 4 << 10, 64 << 10
SIZES = [8, 16, 4, 2]  # of the layers' inputs and outputs


def main():
    gradbus.init()
    torch.manual_seed(1)
    model = nn.Sequential(*[nn.Linear(a, b) for a, b in zip(SIZES, SIZES[1:])])
    schedule = sys.argv[2] if len(sys.argv) > 2 else None
    optimizer = gradbus.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), schedule=schedule)
    for _ in range(14):
        optimizer.zero_grad()
        model(torch.randn(3, SIZES[0])).square().mean().backward()
        optimizer.step()
    assert optimizer._gradbus.recorder is None
    gradbus.barrier()
    found = json.loads(pathlib.Path(sys.argv[1]).read_text())
    elements = [n for a, b in zip(SIZES, SIZES[1:]) for n in (a * b, b)]
    layers = found["layers"]
    assert sorted(layer["elements"] for layer in layers) == sorted(elements), layers
    pairs = [{layers[2 * i]["elements"], layers[2 * i + 1]["elements"]} for i in range(len(SIZES) - 1)]
    assert pairs == [{a * b, b} for a, b in zip(SIZES, SIZES[1:])], layers  # forward order
    assert [number // 2 for number in found["backward_order"]] == [2, 2, 1, 1, 0, 0], found  # the last layer first
    assert all(layer["forward_us"] >= 0 and layer["backward_us"] >= 0 for layer in layers)
    job = found["recorded"]
    nodes = 1 if gradbus.local_size() == gradbus.size() else 2
    assert (job["ranks"], job["nodes"]) == (gradbus.size(), nodes) and job["step_us"] > 0, job
    assert ("network" in job) == (nodes > 1), job
    gradbus.shutdown()
    print("ok", flush=True)


main()

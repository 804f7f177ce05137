"""A rank of Horovod that trains one model by turns: alone, with dense gradients, and with its fp16.

    python -m schedules.horovod_rank MODEL BATCH ROUNDS STEPS

Rank 0 prints one JSON object: by way, the mean step of each turn in seconds. It is for Horovod's own Python, which
has no Gradbus.
"""

from __future__ import annotations

import copy
import json
import sys
import time
from typing import Any

import horovod.torch as hvd
import torch

from schedules.workloads import WORKLOADS

WARM_STEPS = 3


def training_of(model: torch.nn.Module, way: str) -> tuple[torch.nn.Module, Any]:
    """The model and its optimizer. Horovod names operations by parameters, so each way has names of its own."""
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    if way != "compute":
        named = [(f"{way}.{name}", parameter) for name, parameter in model.named_parameters()]
        codec = hvd.Compression.fp16 if way == "fp16" else hvd.Compression.none
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=named, compression=codec)
    return model, optimizer


def main() -> None:
    """As the module says."""
    name, batch_size, rounds, steps = sys.argv[1:]
    torch.set_num_threads(1)
    hvd.init()
    torch.manual_seed(0)
    workload = WORKLOADS[name]
    model, x = workload.make(), workload.inputs(int(batch_size))
    y = torch.randint(workload.classes, (int(batch_size),))
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    ways = ("compute", "none", "fp16")
    trainings = {way: training_of(copy.deepcopy(model), way) for way in ways}
    found: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(int(rounds)):
        for way, (ours, optimizer) in trainings.items():
            hvd.allreduce(torch.zeros(1), name="turn")
            begin = 0.0
            for number in range(WARM_STEPS + int(steps)):
                if number == WARM_STEPS:
                    begin = time.monotonic()
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(ours(x), y).backward()
                optimizer.step()
            found[way].append((time.monotonic() - begin) / int(steps))
    if hvd.rank() == 0:
        print(json.dumps(found), flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()

"""One rank of a job on shards whose log is replayed.

    replay.py MODE OPTIMIZER STEPS FOLDER     random gradients, written to FOLDER by each rank; rank 0 writes the
                                              parameters of the start and of the end
"""

import pathlib
import random
import sys
import time

import gradbus.torch as gradbus
import numpy
import torch

SHAPE = (300, 170)
OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    "adam": (torch.optim.Adam, {"lr": 0.1, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.01}),
}


def main():
    mode, name, steps, folder = sys.argv[1], sys.argv[2], int(sys.argv[3]), pathlib.Path(sys.argv[4])
    gradbus.init()
    rank = gradbus.rank()
    kind, options = OPTIMIZERS[name]
    weight = torch.nn.Parameter(torch.randn(SHAPE, generator=torch.Generator().manual_seed(7)))
    begin = weight.detach().clone()
    gradients = torch.randn((steps, *SHAPE), generator=torch.Generator().manual_seed(8 + rank))
    optimizer = gradbus.DistributedOptimizer(kind([weight], **options), [("weight", weight)], mode=mode)
    pauses = random.Random(rank)
    for step, gradient in enumerate(gradients):
        optimizer.param_groups[0]["lr"] = options["lr"] / (1 + step // 5)  # it comes with the push
        optimizer.zero_grad()
        (weight * gradient).sum().backward()
        optimizer.step()
        time.sleep(pauses.uniform(0, 0.02))
    optimizer.flush()
    numpy.save(folder / f"gradients-{rank}.npy", gradients.numpy())
    if rank == 0:
        numpy.save(folder / "begin.npy", begin.numpy())
        numpy.save(folder / "end.npy", weight.detach().numpy())
    gradbus.shutdown()
    print("ok")


if __name__ == "__main__":
    main()

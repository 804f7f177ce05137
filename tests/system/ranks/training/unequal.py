"""A rank whose parameters or passes differ from the others': `unequal.py MODE` prints the error as JSON."""

import json
import sys
import time

import gradbus.torch as gradbus
import torch


def report(kind, call):
    began = time.monotonic()
    try:
        call()
    except kind as error:
        text, seconds = str(error), time.monotonic() - began
        print(json.dumps({"error": type(error).__name__, "text": text, "seconds": seconds}))
        sys.stdout.flush()
    else:
        sys.exit("no error")


def model_of(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2)
    )


def step(model, optimizer):
    optimizer.zero_grad()
    model(torch.randn(6, 4)).pow(2).mean().backward()
    optimizer.step()


def wrapped(model, **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return gradbus.DistributedOptimizer(optimizer, model.named_parameters(), **options)


def forgotten():
    """Every rank has its own random numbers, and nobody broadcasts."""
    model = model_of(gradbus.rank())
    optimizer = wrapped(model)
    report(gradbus.MismatchError, lambda: step(model, optimizer))
    report(gradbus.MismatchError, lambda: step(model, optimizer))  # and still


def one_bit():
    """Rank 1 has another sign of one zero, in the last layer."""
    model = model_of(0)
    with torch.no_grad():
        model[2].weight[1, 3] = -0.0 if gradbus.rank() == 1 else 0.0
    optimizer = wrapped(model)
    report(gradbus.MismatchError, lambda: step(model, optimizer))


def drifting():
    model = model_of(0)
    optimizer = wrapped(model, check_every=3)
    for _ in range(4):
        step(model, optimizer)
    with torch.no_grad():
        model[2].bias[0] += 1e-3 * (gradbus.rank() == 1)
    step(model, optimizer)
    step(model, optimizer)
    report(gradbus.MismatchError, lambda: step(model, optimizer))


def in_a_set():
    """Ranks 1 and 2 train a model of their own; 0 has another one."""
    pair = gradbus.add_process_set([1, 2])
    if gradbus.rank() == 0:
        print(json.dumps({"error": "none", "text": "", "seconds": 0}))
        return
    equal, unequal = model_of(7), model_of(gradbus.rank())
    step(equal, wrapped(equal, process_set=pair))
    optimizer = wrapped(unequal, process_set=pair)
    report(gradbus.MismatchError, lambda: step(unequal, optimizer))


def fewer_passes():
    """Rank 1 makes one backward pass for a step, the others two."""
    model = model_of(0)
    optimizer = wrapped(model)

    def train():
        for _ in range(3):
            optimizer.zero_grad()
            for _ in range(1 if gradbus.rank() == 1 else 2):
                model(torch.randn(6, 4)).pow(2).mean().backward()
            optimizer.step()

    report((gradbus.MismatchError, gradbus.PeerLostError, gradbus.ClosedError), train)


def averaged_twice(file, order):
    """The model is in a DistributedDataParallel, made before or after the optimizer."""
    rank, size = gradbus.rank(), gradbus.size()
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{file}", rank=rank, world_size=size
    )
    model = model_of(0)
    wrap = torch.nn.parallel.DistributedDataParallel
    step(model, wrapped(model))  # a process group alone is no harm
    if order == "before":
        averaged = wrap(model)
        report(gradbus.InvalidError, lambda: wrapped(averaged))
    else:
        optimizer = wrapped(model)
        averaged = wrap(model)
        report(gradbus.InvalidError, lambda: step(averaged, optimizer))
    torch.distributed.destroy_process_group()


def equal():
    """What is allowed: other buffers, NaNs, frozen parameters, broadcast=True, modes without replicas."""
    model = model_of(gradbus.rank())
    model[0].bias.requires_grad_(False)
    optimizer = wrapped(model, broadcast=True, check_every=1)
    for _ in range(3):
        step(model, optimizer)  # each rank's batch is its own, and so is the running mean
    with torch.no_grad():
        model[2].weight.fill_(float("nan"))
    step(model, optimizer)
    empty = torch.nn.ParameterList([torch.zeros(0), torch.ones(()), torch.ones(3, 2).t()])
    optimizer = wrapped(empty, check_every=1)
    for _ in range(2):
        optimizer.zero_grad()
        sum(p.sum() for p in empty).backward()
        optimizer.step()
    for mode in ("averaging:every=2", "localsgd:H=2", "gossip"):
        model = model_of(gradbus.rank())
        optimizer = wrapped(model, mode=mode, check_every=1)
        for _ in range(3):
            step(model, optimizer)
        optimizer.flush()
    print("ok")


if __name__ == "__main__":
    torch.set_num_threads(1)
    gradbus.init()
    torch.manual_seed(100 + gradbus.rank())
    globals()[sys.argv[1]](*sys.argv[2:])
    gradbus.shutdown()

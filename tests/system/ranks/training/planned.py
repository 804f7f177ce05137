"""A rank: the coordinator plans its steps, and the training has the parameters that one process has.

    planned.py SCHEDULE [COMPRESSION]
"""

import os
import sys
import warnings

import gradbus.torch as gradbus
import torch
from gradbus.torch import _planning
from optimizer import assert_same, batches, loss_of, mine, new_model
from torch import nn

SCHEDULE = sys.argv[1]
COMPRESSION = sys.argv[2] if len(sys.argv) > 2 else None
STEPS = 30
_planning.SMALL, _planning.LARGE = 4 << 10, 64 << 10
_planning.GAIN_MIN = _planning.KEEP_MIN = -10.0  # auto takes each plan, and keeps it

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
}


def model_of():
    """Large enough to be compressed, if it is to be."""
    small = new_model(5)
    if COMPRESSION is None:
        return small
    torch.manual_seed(5)
    first, last = small[0].in_features, small[-1].out_features
    return nn.Sequential(nn.Linear(first, 160), nn.Tanh(), nn.Linear(160, 160), nn.Tanh(), nn.Linear(160, last))


def train(name, passes):
    ours, alone = model_of(), model_of()
    make = OPTIMIZERS[name]
    optimizer = gradbus.DistributedOptimizer(
        make(ours.parameters()), ours.named_parameters(), schedule=SCHEDULE, compression=COMPRESSION,
        backward_passes_per_step=passes,
    )  # fmt: skip
    reference = make(alone.parameters())
    state = optimizer._gradbus
    before = [bucket.spec[0] for bucket in state.exchange.buckets]
    for number in range(STEPS):
        x, y = batches()[number % 5]
        for model, stepper, a, b in ((ours, optimizer, mine(x), mine(y)), (alone, reference, x, y)):
            stepper.zero_grad()
            for _ in range(passes):
                (loss_of(model, a, b) / passes).backward()
            stepper.step()
    assert state.planning is None and state.plan is not None, state.planning
    assert [bucket.spec[0] for bucket in state.exchange.buckets] != before
    if COMPRESSION is None:
        assert_same(ours, alone, tolerance=1e-5)
    optimizer.flush()
    sums = torch.tensor([p.double().sum().item() for p in ours.parameters()])
    assert torch.equal(gradbus.allreduce(sums, op=gradbus.Max), sums), "ranks differ"
    if ":groups=" in SCHEDULE:
        groups = len(set(state.plan.group_of.values()))
        assert groups == int(SCHEDULE.partition("=")[2]), state.plan
    return state


def main():
    warnings.filterwarnings("error", message="gradbus: buckets")
    os.environ["GRADBUS_PLAN"] = "1"  # for auto
    gradbus.init()
    for name in OPTIMIZERS:
        for passes in (1, 2):
            state = train(name, passes)
    print("plan", state.plan.waits, state.plan.why)
    gradbus.shutdown()
    print("ok", flush=True)


main()

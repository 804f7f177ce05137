"""A rank: the coordinator plans its steps, and the training has the parameters that one process has.

    planned.py SCHEDULE [COMPRESSION]
"""

import hashlib
import os
import sys
import warnings

import gradbus.torch as gradbus
import torch
from changing_model import Changing
from gradbus.torch._tuning import measured, plan_trials, planning
from lamb import Lamb
from optimizer import assert_same, batches, loss_of, mine, new_model
from torch import nn

SCHEDULE = sys.argv[1]
COMPRESSION = sys.argv[2] if len(sys.argv) > 2 else None
STEPS = 30
measured.SMALL, measured.LARGE = 4 << 10, 64 << 10
planning.LOSS_MAX = 10.0  # auto tries each plan ...
plan_trials.Trials.best = property(lambda trials: 1 + trials.found[1:].index(min(trials.found[1:])))  # ... keeps one
plan_trials.WARM_STEPS, plan_trials.STEPS = 1, 3

class LayerwiseLamb(Lamb):
    """It may be stepped layer by layer."""

    steps_each_parameter_alone = True


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "lamb": lambda p: LayerwiseLamb(p, lr=0.02, weight_decay=0.01),
}


def model_of():
    """Large enough to be compressed, if it is to be."""
    small = new_model(5)
    if COMPRESSION is None:
        return small
    torch.manual_seed(5)
    first, last = small[0].in_features, small[-1].out_features
    return nn.Sequential(nn.Linear(first, 160), nn.Tanh(), nn.Linear(160, 160), nn.Tanh(), nn.Linear(160, last))


def assert_same_checkpoint(ours, optimizer, alone, reference):
    """Parameters and the state of the optimizer, as files would have them. What no loss uses has no state alone."""
    pairs = list(zip(ours.state_dict().values(), alone.state_dict().values(), strict=True))
    kept = optimizer.state_dict()["state"]
    for number, one in reference.state_dict()["state"].items():
        pairs += [(kept[number][key], value) for key, value in one.items() if torch.is_tensor(value)]
    assert all(torch.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in pairs), "checkpoints differ"


def train(name, passes, make_model=model_of):
    ours, alone = make_model(), make_model()
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
            stepper.zero_grad(set_to_none=False)  # alone, too, a branch that was not used counts as zero
            for _ in range(passes):
                (loss_of(model, a, b) / passes).backward()
            stepper.step()
        if number == STEPS // 2 and COMPRESSION is None:
            assert_same_checkpoint(ours, optimizer, alone, reference)
    assert state.planning is None and state.plan is not None, state.planning
    report = optimizer.exchange_plan()
    assert report["is_final"] and report["schedule"] == SCHEDULE.partition(":")[0], report
    assert sum(report["bucket_bytes"]) >= 4 * sum(p.numel() for p in ours.parameters()), report  # with padding
    assert len(report["bucket_bytes"]) == len(report["compression"]) == len(state.exchange.buckets), report
    assert report["why"] == state.plan.why and report["waits"] == state.exchange.waits, report
    assert [bucket.spec[0] for bucket in state.exchange.buckets] != before
    if COMPRESSION is None:
        assert_same(ours, alone, tolerance=1e-5)
    optimizer.flush()
    digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in ours.parameters())).hexdigest()
    assert len(set(gradbus.allgather_object(digest))) == 1, "ranks differ"
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
    if COMPRESSION is None:
        train("sgd", 1, Changing)
    print("plan", state.plan.waits, state.plan.why)
    gradbus.shutdown()
    print("ok", flush=True)


main()

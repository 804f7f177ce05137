"""A rank: `exchange_plan()` says where a step waits, and that is where it waits.

    reported_waits.py SCHEDULE PLACE    "forward" if this schedule waits there on these nodes, else "backward";
                                        "shards": so, and there are shards
"""

import sys
import warnings

import gradbus.torch as gradbus
import torch
from gradbus.torch._buckets.gradient_buckets import Bucket
from gradbus.torch._exchange.holders import sees_all_readers
from torch import nn

SCHEDULE, PLACE = sys.argv[1:]
HAS_FORWARD = PLACE != "backward"
Bucket.test = lambda self: False  # as if no result were there when step() is called
IN_FORWARD = "split" if SCHEDULE == "dear" else "layer"
STEPS = 4  # the first one is ended at once, for new buckets


class Counting(torch.optim.SGD):
    """Nobody says that it steps each parameter by itself."""


def clip(model, optimizer):
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def synchronize(model, optimizer):
    optimizer.synchronize()


def nothing(model, optimizer):
    pass


# What a job asks for, what it does before step(), and what then keeps the wait from the forward pass; "": nothing.
CASES = {
    "plain": ({}, nothing, ""),
    "compression": ({"compression": "topk:ratio=0.5"}, nothing, ""),
    "accumulation": ({"backward_passes_per_step": 2}, nothing, ""),
    "delay": ({"mode": "delayed:k=1"}, nothing, "results of '4.bias' are delayed"),
    "clipping": ({}, clip, "gradients were read before step()"),
    "synchronize": ({}, synchronize, "results were waited for before step()"),
    "wait": ({"wait": "step"}, nothing, 'wait="step" was asked for'),
    "averaging": ({"mode": "localsgd:H=2"}, nothing, "ranks exchange '0.bias' itself"),
    "hook": ({"hooks": True}, nothing, "somebody takes part in step()"),
    "other optimizer": ({"kind": Counting}, nothing, "nothing says that Counting steps each parameter by itself"),
}
ON_SHARDS = {
    "sums on shards": ({"mode": "ps:sync"}, nothing, ""),
    "steps on shards": ({"mode": "ps:async,optimizer=sgd,lr=0.01"}, nothing, "shards step on '4.bias'"),
}
WAITS_IN_STEP = ("wait", "averaging", "steps on shards")
KEPT_BY_MODE = ("delay", "steps on shards")


def wrapped(model, options):
    options = dict(options)
    hooks, kind = options.pop("hooks", False), options.pop("kind", torch.optim.SGD)
    optimizer = kind(model.parameters(), lr=0.1)
    if hooks and hasattr(optimizer, "register_step_post_hook"):
        optimizer.register_step_post_hook(lambda *_: None)
    return gradbus.DistributedOptimizer(
        optimizer, model.named_parameters(), schedule=SCHEDULE, bucket_bytes=300, **options
    )


def model_of():
    """Large enough to be compressed."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 160), nn.Tanh(), nn.Linear(160, 160), nn.Tanh(), nn.Linear(160, 3))


def run(name, options, before_step, why):
    model = model_of()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        optimizer = wrapped(model, options)
    deferred = 0
    for number in range(STEPS):
        optimizer.zero_grad()
        for _ in range(options.get("backward_passes_per_step", 1)):
            model(torch.randn(6, 5)).square().mean().backward()
        before_step(model, optimizer)
        optimizer.step()
        deferred += number > 0 and optimizer._gradbus.exchange.deferred.is_stepped
        plan = optimizer.exchange_plan()
    check(name, plan, deferred, why, [str(one.message) for one in told])
    optimizer.flush()


def check(name, plan, deferred, why, told):
    waits = plan["waits"]
    assert ("topk:ratio=0.5" in plan["compression"]) == (name == "compression"), plan
    print(name, waits, plan["why"], flush=True)
    assert deferred in (0, STEPS - 1) and (waits in ("layer", "split")) == bool(deferred), (name, plan, deferred)
    in_forward = HAS_FORWARD and not why
    assert waits == (IN_FORWARD if in_forward else "step" if name in WAITS_IN_STEP else "backward"), (name, plan)
    if HAS_FORWARD:
        assert (why in plan["why"]) if why else not plan["why"], (name, plan)
    warned = [text for text in told if "leaves nothing to the next forward pass" in text]
    assert len(warned) == (name in KEPT_BY_MODE and HAS_FORWARD and SCHEDULE != "auto"), (name, told)


def main():
    gradbus.init()
    for name, case in (ON_SHARDS if PLACE == "shards" else CASES).items():
        if name == "hook" and not hasattr(torch.optim.Optimizer, "register_step_post_hook"):
            continue
        if sees_all_readers():  # else no step is put off, and nothing says so before
            run(name, *case)
    gradbus.shutdown()
    print("ok", flush=True)


main()

"""One rank whose job changes modes while it runs: what rank 0 asks for comes at the next fence.

    mode_changes.py counting          no gradient is lost or counted twice in any of many changes
    mode_changes.py group             one group changes, the other does not
    mode_changes.py memory            the state of error feedback is carried over
    mode_changes.py squares           what delay compensation keeps is carried over, too
    mode_changes.py momenta           from modes with momenta of each rank's own to sync, in which replicas are equal
    mode_changes.py lamb              to shards that step on whole tensors, and back
    mode_changes.py refused           a mode that cannot be leaves everything as it was
    mode_changes.py late              the last rank is late until the job changes its mode by itself
    mode_changes.py loses             reports losses, then one that is not finite, until its mode is sync
    mode_changes.py forever           steps until the job ends; fences are the environment's
"""

import os
import subprocess
import sys
import time
import warnings

import gradbus.torch as gradbus
import torch
from two_parameters import SHAPE, make, step

COMPRESSED = (256, 128)  # large enough
MODES = ("delayed:k=1", "sync", "ps:sync", "delayed:k=1", "ps:async", "localsgd:H=2", "sync",
         "averaging:every=2", "delayed:k=3", "ps:async", "diloco:H=2,outer_lr=1,outer_momentum=0", "sync")  # fmt: skip


def ask(group, mode):
    """Returns when every rank may hear of it."""
    if gradbus.rank() == 0:
        words = [os.environ["GRADBUS_BIN"] + "/gradbus", "mode", os.environ["GRADBUS_JOB"], group, mode]
        subprocess.run(words, check=True, timeout=30, stdout=subprocess.DEVNULL)
    gradbus.barrier()


def counting():
    """lr is 1 and gradients are small integers; on shards each node's gradient is a step."""
    parameters = make("sync")
    weight, _, optimizer = parameters
    mean, expected, steps = (gradbus.size() + 1) / 2, 0.0, 0
    now = "sync"

    def some_steps(count):
        nonlocal expected, steps
        for _ in range(count):
            step(parameters, torch.full(SHAPE, float(gradbus.rank() + 1)))
            expected -= mean * (gradbus.cross_size() if now == "ps:async" else 1)
            steps += 1
        optimizer.flush()

    for mode in MODES:
        some_steps(3)
        ask("*", mode)
        while set(optimizer.modes().values()) == {now}:
            assert steps < 500, (now, mode)
            some_steps(1)
        now = optimizer.modes()["weight"]
        assert now.startswith(mode.partition(":")[0]), (now, mode)
        assert torch.equal(weight.detach(), torch.full(SHAPE, expected)), (mode, weight, expected)
    some_steps(3)
    assert torch.equal(weight.detach(), torch.full(SHAPE, expected)), (weight, expected)


def until_changed(optimizer, name):
    before = optimizer.modes()[name]
    for _ in range(500):
        optimizer.flush()
        if optimizer.modes()[name] != before:
            return
    raise AssertionError(f"{name} stays in mode {before}")


def group():
    weight, bias, optimizer = parameters = make("sync")
    ask("w*", "delayed:k=2")
    until_changed(optimizer, "weight")
    assert optimizer.modes() == {"weight": "delayed:k=2", "bias": "sync"}
    for number in range(4):
        step(parameters, torch.full(SHAPE, 1.0))
        assert bias[0].item() == -(number + 1) and weight[0, 0].item() == -max(0, number - 1)
    assert optimizer.staleness() == {"weight": 2, "bias": 0}
    optimizer.flush()
    assert weight[0, 0].item() == -4


def memory():
    """With top-k most of the gradient is kept back; after changes it still is there, or was used."""
    weight = torch.nn.Parameter(torch.zeros(COMPRESSED))
    optimizer = gradbus.DistributedOptimizer(
        torch.optim.SGD([weight], lr=1.0), [("weight", weight)],
        compression="topk:ratio=0.01,ef=residual", mode="sync")  # fmt: skip
    gradient = torch.arange(weight.numel(), dtype=torch.float32).reshape(COMPRESSED) / 64
    steps = 0

    def total():
        kept = optimizer.compression_state()["residual"].get("weight", torch.zeros(COMPRESSED))
        kept = gradbus.allreduce(kept, op=gradbus.Sum, name="kept") / gradbus.size()
        return kept - weight.detach()

    for mode in ("delayed:k=1", "sync", "delayed:k=2", "sync"):
        for _ in range(3):
            optimizer.zero_grad()
            (weight * gradient).sum().backward()
            optimizer.step()
            steps += 1
        ask("*", mode)
        until_changed(optimizer, "weight")
        assert torch.allclose(total(), steps * gradient, rtol=1e-5, atol=1e-3), mode
    assert optimizer.compression_state()["residual"]["weight"].abs().max() > 100
    # Its units are a gradient's; differences of parameters have others, and their mean keeps nothing.
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for mode in ("localsgd:H=2", "averaging:every=2", "ps:sync"):
            ask("*", mode)
        ask("*", "delayed:k=1")
        until_changed(optimizer, "weight")
    assert len(said) == 3 and all("is compressed" in str(each.message) for each in said), said
    assert optimizer.modes() == {"weight": "delayed"}
    assert torch.allclose(total(), steps * gradient, rtol=1e-5, atol=1e-3)


def squares():
    weight, _, optimizer = parameters = make("delayed:dc=2,dc_decay=0.5")
    for _ in range(3):
        step(parameters, torch.full(SHAPE, 2.0))
    optimizer.flush()
    kept = torch.full(SHAPE, 4 * (1 - 0.5**3))
    assert torch.equal(optimizer.outer_state()["mean_square"]["weight"], kept)
    ask("bias", "sync")
    until_changed(optimizer, "bias")
    (found,) = optimizer.outer_state()["mean_square"].values()
    assert torch.equal(found, kept)
    for mode in ("sync", "delayed:dc=2,dc_decay=0.5"):  # begins anew, though what it registered is there
        ask("weight", mode)
        until_changed(optimizer, "weight")
    (found,) = optimizer.outer_state()["mean_square"].values()
    assert not found.any() and found.shape == SHAPE
    try:
        optimizer.load_outer_state({"mean_square": {"weight": kept[1:]}})
    except gradbus.InvalidError as error:
        assert "the mean_square of 'weight' does not fit" in str(error), error
    else:
        raise AssertionError("a state of another shape was loaded")


def all_equal(*tensors):
    """On all ranks, bit for bit."""
    everyone = gradbus.allgather_object([tensor.detach() for tensor in tensors])
    return all(torch.equal(one, other) for theirs in everyone for one, other in zip(theirs, everyone[0], strict=True))


def with_own_gradients(parameters, count):
    """So many steps on gradients that no two ranks have alike."""
    for number in range(count):
        step(parameters, torch.full(SHAPE, float(gradbus.rank() + 1 + number)))


def from_own_momenta(mode, optimizer, options, counts_differ=False):
    """Ranks have momenta of their own, and steps if ``counts_differ``. In sync both are the same on all of them."""
    parameters = weight, bias, distributed = make(mode, 0.125, optimizer, **options)
    with_own_gradients(parameters, 6 + (gradbus.rank() if counts_differ else 0))
    own = distributed.state[weight]
    key = "exp_avg" if "exp_avg" in own else "momentum_buffer"
    everyone = gradbus.allgather_object((own[key], int(own.get("step", 0))))
    assert not torch.equal(everyone[0][0], everyone[-1][0])
    ask("*", "sync")
    until_changed(distributed, "weight")
    state = distributed.state[weight]
    assert torch.allclose(state[key], sum(moment for moment, _ in everyone) / gradbus.size())
    assert int(state.get("step", 0)) == everyone[0][1]  # the lowest rank's
    for count in (1, 5):
        with_own_gradients(parameters, count)
        assert all_equal(weight, bias, state[key]), mode


def momenta():
    adam, sgd = torch.optim.Adam, (torch.optim.SGD, {"momentum": 0.9})
    from_own_momenta("localsgd:H=4", *sgd)
    from_own_momenta("diloco:H=4", adam, {"amsgrad": True})
    from_own_momenta("gossip", *sgd)
    from_own_momenta("averaging:every=2", adam, {}, counts_differ=True)
    # A rank that never used a parameter has no state of it, and a search's lists have no mean.
    parameters = weight, bias, distributed = make("localsgd:H=4", 0.125, *sgd[:1], momentum=0.9)
    distributed.zero_grad()
    (weight.sum() * (gradbus.rank() + 1) + (bias.sum() if gradbus.rank() == 0 else 0)).backward()
    distributed.step()
    ask("*", "sync")
    until_changed(distributed, "weight")
    with_own_gradients(parameters, 2)
    assert all_equal(weight, bias)
    weight = torch.nn.Parameter(torch.ones(5))
    distributed = gradbus.DistributedOptimizer(torch.optim.LBFGS([weight]), [("weight", weight)], mode="localsgd:H=2")

    def closure():
        distributed.zero_grad()
        loss = ((weight - gradbus.rank()) ** 2 * torch.arange(1.0, 6.0)).sum()
        loss.backward()
        return loss

    distributed.step(closure)
    ask("*", "sync")
    until_changed(distributed, "weight")
    distributed.step(closure)
    assert all_equal(weight)


def lamb():
    """A step is as long as the rate times the parameters, and SGD's again after it."""
    weight, _, optimizer = parameters = make("sync", lr=0.125)
    gradient = torch.full(SHAPE, 64.0)
    step(parameters, gradient)
    assert torch.equal(weight.detach(), torch.full(SHAPE, -8.0)), weight
    ask("*", "ps:quorum,q=3,optimizer=lamb")
    until_changed(optimizer, "weight")
    step(parameters, gradient)
    assert torch.allclose(weight.detach(), torch.full(SHAPE, -9.0)), weight
    ask("*", "sync")
    until_changed(optimizer, "weight")
    step(parameters, gradient)
    assert torch.allclose(weight.detach(), torch.full(SHAPE, -17.0)), weight


def refused():
    parameters = make("sync", compression="fp16")
    weight, _, optimizer = parameters
    with torch.no_grad():
        big = torch.nn.Parameter(torch.zeros(COMPRESSED))
    optimizer.add_param_group({"params": [big]})  # compressed: its group stays where it is
    ask("*", "ps:async")
    ask("weight", "delayed:k=1")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        until_changed(optimizer, "weight")
    assert "is compressed" in str(said[0].message) and "'*' stays" in str(said[0].message), said
    assert optimizer.modes() == {"weight": "delayed", "bias": "sync", "group1.0": "sync"}, optimizer.modes()
    for _ in range(3):
        optimizer.zero_grad()
        (weight.sum() + big.sum()).backward()
        optimizer.step()
    optimizer.flush()
    assert weight[0, 0].item() == big[0, 0].item() == -3


def late():
    """Fences are the environment's, so this is a script that knows nothing of modes."""
    parameters = make("sync")
    deadline = time.monotonic() + 60
    while set(parameters[2].modes().values()) == {"sync"}:
        assert time.monotonic() < deadline
        time.sleep(0.05 if gradbus.rank() == gradbus.size() - 1 else 0)
        step(parameters, torch.ones(SHAPE))
    assert set(parameters[2].modes().values()) == {"delayed"}, parameters[2].modes()
    parameters[2].flush()


def forever():
    parameters = make("sync")
    print("steps", flush=True)
    try:
        while True:
            step(parameters, torch.ones(SHAPE))
    except gradbus.GradbusError as error:
        print(type(error).__name__, parameters[2].modes()["weight"])


def loses():
    """Fences are the environment's; the last rank's loss breaks."""
    parameters = make("delayed:k=1")
    deadline = time.monotonic() + 60
    steps = 0
    while set(parameters[2].modes().values()) == {"delayed"}:
        assert time.monotonic() < deadline
        steps += 1
        broken = steps > 100 and gradbus.rank() == gradbus.size() - 1
        parameters[2].report_loss(torch.tensor(float("nan")) if broken else 0.5)
        step(parameters, torch.ones(SHAPE))
        time.sleep(0.01)
    assert set(parameters[2].modes().values()) == {"sync"}, parameters[2].modes()
    assert steps > 100, steps


def main():
    gradbus.init()
    commands = [counting, group, memory, squares, momenta, lamb, refused, late, loses, forever]
    {command.__name__: command for command in commands}[sys.argv[1]]()
    gradbus.shutdown()
    print("ok")


if __name__ == "__main__":
    main()

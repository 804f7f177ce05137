"""Exchanges through parameter-server shards, as one rank sees them.

    shards.py counting MODE          integers: every rank's every gradient arrives exactly once
    shards.py optimizer NAME         one rank: the shards' steps are torch's own
    shards.py layers MODE            lamb: every rank's every gradient makes one step, of all of a tensor
    shards.py ahead STALENESS        ps:ssp: how far the fast rank gets ahead of the slow one
    shards.py steps MODE NAME FIRST LAST   one rank: steps FIRST to LAST - 1 of a run, wherever its shards
                                     begin from; they end as torch's after all LAST steps
    shards.py parameters MODE NAME:ROWSxCOLUMNS...   one step of parameters in this order
    shards.py pulled MODE            prints the least and the largest parameter, after one round
    shards.py slow MODE STEPS SLEEP  the last rank sleeps before every step; prints each one's seconds
    shards.py forever MODE           steps until the job ends; prints its error
    shards.py refused MODE WORDS [COMPRESSION]   registration fails with these words
    shards.py other_memory           what is put back fits in part, or not at all
    shards.py nothing_to_pull        a pull is refused where shards only sum
"""

import sys
import time
import warnings

import gradbus.torch as gradbus
import torch
from lamb import Lamb
from two_parameters import NAMED, OPTIMIZERS, SHAPE, make, step

STEPS = 6


def counting(mode):
    """Gradients are small integers, lr is 1: sums are exact in float32, in any order."""
    weight, bias, optimizer = parameters = make(mode)
    nodes = gradbus.cross_size()
    for number in range(STEPS):
        step(parameters, torch.full(SHAPE, float(gradbus.rank() + 1 + number)))
        assert all(age >= 0 for age in optimizer.staleness().values())
    optimizer.flush()
    # A node's gradient is the mean of its ranks'; with ps:sync a step is the mean of all.
    wanted = -sum(rank + 1 + number for rank in range(gradbus.size()) for number in range(STEPS))
    wanted *= 1 / gradbus.size() if mode == "ps:sync" else nodes / gradbus.size()
    if mode == "ps:quorum,q=2":  # steps on means of two of them, or of one when the others have ended
        assert wanted <= weight.min() <= weight.max() <= wanted / 2, (weight, wanted)
    else:
        assert torch.equal(weight.detach(), torch.full(SHAPE, float(wanted))), (weight, wanted)
        times = 1 if mode == "ps:sync" else nodes
        assert torch.equal(bias.detach(), torch.full((3,), -float(STEPS * times)))
    everywhere = gradbus.allgather_object(weight.detach().sum().item())
    assert len(set(everywhere)) == 1, everywhere


def optimizer(name):
    """With one rank async is as good as local; the learning rate changes and is zero once."""
    kind, options = OPTIMIZERS[name]
    weight, bias, distributed = make("ps:async" + NAMED.get(name, ""), 0.1, kind, **options)
    start = torch.randn(SHAPE, generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        weight.copy_(start)
    alone = [torch.nn.Parameter(start.clone()), torch.nn.Parameter(torch.zeros(3))]
    plain = kind(alone, lr=0.1, **options)
    for number in range(10):
        gradient = torch.randn(SHAPE, generator=torch.Generator().manual_seed(number))
        for each in (distributed, plain):
            each.param_groups[0]["lr"] = 0.0 if number == 4 else 0.1 / (1 + number)
        step((weight, bias, distributed), gradient)
        step((*alone, plain), gradient)
        for mine, wanted in zip((weight, bias), alone):
            error = (mine - wanted).abs().max().item()
            assert error < 1e-5, (name, number, error)  # of values up to 4


def layers(mode):
    """All elements and gradients are alike, so the order of the steps does not matter. The groups
    of SGD have no betas."""
    weight, bias, optimizer = parameters = make(f"{mode},optimizer=lamb", 0.01, weight_decay=0.02)
    alone = [torch.nn.Parameter(torch.full(SHAPE, 100.0)), torch.nn.Parameter(torch.full((3,), 7.0))]
    plain = Lamb(alone, lr=0.01, weight_decay=0.02)
    with torch.no_grad():
        weight.fill_(100.0)
        bias.fill_(7.0)
    for _ in range(STEPS):
        step(parameters, torch.full(SHAPE, 3.0))
        for _ in range(gradbus.cross_size()):
            step((*alone, plain), torch.full(SHAPE, 3.0))
    optimizer.flush()
    for mine, wanted in zip((weight, bias), alone):
        assert torch.allclose(mine, wanted, rtol=1e-5), (mine, wanted)
    everywhere = gradbus.allgather_object(weight.detach().numpy().tobytes())
    assert len(set(everywhere)) == 1


def steps(mode, name, first, last):
    """What this rank brings counts in the run's first step only."""
    kind, options = OPTIMIZERS[name]
    weight, bias, distributed = make(mode + NAMED.get(name, ""), 0.1, kind, **options)
    start = torch.randn(SHAPE, generator=torch.Generator().manual_seed(5))
    if int(first) == 0:
        with torch.no_grad():
            weight.copy_(start)
    alone = [torch.nn.Parameter(start.clone()), torch.nn.Parameter(torch.zeros(3))]
    plain = kind(alone, lr=0.1, **options)
    for number in range(int(last)):
        gradient = torch.randn(SHAPE, generator=torch.Generator().manual_seed(number))
        step((*alone, plain), gradient)
        if number >= int(first):
            step((weight, bias, distributed), gradient)
    for mine, wanted in zip((weight, bias), alone):
        error = (mine - wanted).abs().max().item()
        assert error < 1e-5, (name, error)


def parameters(mode, *described):
    """Small ones, which share a bucket."""
    named = []
    for name, _, shape in (words.partition(":") for words in described):
        named.append((name, torch.nn.Parameter(torch.zeros([int(side) for side in shape.split("x")]))))
    optimizer = gradbus.DistributedOptimizer(torch.optim.SGD([p for _, p in named], lr=1.0), named, mode=mode)
    optimizer.zero_grad()
    sum(parameter.sum() for _, parameter in named).backward()
    optimizer.step()


def pulled(mode):
    """Gradients of zeros change nothing."""
    weight, _, _ = parameters = make(mode)
    step(parameters, torch.zeros(SHAPE))
    print(f"pulled {weight.min().item():.0f} {weight.max().item():.0f}")


def ahead(staleness):
    """Ranks say after each step how many they have made; a fast one is never further ahead, also right after
    a fence, and whoever was slow before it."""
    parameters = make(f"ps:ssp,max_staleness={staleness}")
    step(parameters, torch.ones(SHAPE))
    for slow in (gradbus.size() - 1, 0):
        parameters[2].flush()
        everybody = gradbus.allgather_object(timed_steps(parameters, 0.1 if gradbus.rank() == slow else 0))
        pushed = [began for began, _ in everybody[slow]]
        for times in everybody:
            for number, (_, ended) in enumerate(times):
                begun_by_slowest = sum(began <= ended for began in pushed)
                assert number + 1 - begun_by_slowest <= int(staleness), (slow, number, begun_by_slowest)
    parameters[2].flush()
    assert parameters[0][0, 0].item() == -25 * gradbus.size()


def timed_steps(parameters, pause):
    """The begin and the end of each of twelve steps."""
    times = []
    for _ in range(12):
        time.sleep(pause)
        began = time.time()
        step(parameters, torch.ones(SHAPE))
        times.append((began, time.time()))
    return times


def slow(mode, steps, sleep):
    parameters = make(mode)
    gradient = torch.ones(SHAPE)
    step(parameters, gradient)
    gradbus.barrier()
    last = gradbus.rank() == gradbus.size() - 1
    began = time.monotonic()
    for _ in range(int(steps)):
        time.sleep(float(sleep) if last else 0)
        step(parameters, gradient)
    print(f"seconds {time.monotonic() - began:.3f}")
    parameters[2].flush()


def forever(mode):
    parameters = make(mode)
    try:
        while True:
            step(parameters, torch.ones(SHAPE))
            print("stepped", flush=True)
            time.sleep(0.01)
    except gradbus.GradbusError as error:
        print(type(error).__name__, error)


def nothing_to_pull():
    """It would count as a gradient."""
    parameters = make("ps:sync")
    step(parameters, torch.ones(SHAPE))
    (bucket,) = parameters[2]._gradbus.exchange.buckets
    try:
        bucket.core.start_pull()
        raise AssertionError("was accepted")
    except gradbus.InvalidError as error:
        assert "no shard holds its parameters" in str(error), error
    step(parameters, torch.ones(SHAPE))
    assert parameters[0][0, 0].item() == -2


def other_memory():
    """Of another optimizer it begins anew, said on rank 0; of another model it is refused on all ranks."""
    *tensors, optimizer = parameters = make("ps:async", 0.1, torch.optim.SGD, momentum=0.5)
    step(parameters, torch.ones(SHAPE))
    optimizer.flush()
    state = optimizer.shard_state()
    nodes = gradbus.cross_size()
    wanted = [2 - 0.5 ** (nodes - 1), nodes]  # v = 0.5 v + 1; steps
    assert state.keys() == ({"weight", "bias"} if gradbus.rank() == 0 else set()), state
    for of in state.values():
        assert of["optimizer"] == "sgd" and [part.item() for part in of["parts"]] == wanted, (of, wanted)
    other = {name: {**of, "optimizer": "adagrad"} for name, of in state.items()}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        optimizer.load_shard_state(other)
    assert ["begins anew" in str(warning.message) for warning in said] == [True] * len(other), said
    wrong = {name: {**of, "parts": [torch.ones(2, 2)] * 2} for name, of in state.items()}
    try:
        optimizer.load_shard_state(wrong)
        raise AssertionError("was accepted")
    except gradbus.InvalidError as error:
        assert "has shape" in str(error) and "(2, 2)" in str(error), error
    before = [tensor.detach().clone() for tensor in tensors]
    optimizer.load_shard_state(state)
    assert all(torch.equal(tensor, was) for tensor, was in zip(tensors, before, strict=True))
    optimizer.flush()
    assert_parts(optimizer.shard_state(), state)
    whole = gradbus.state(optimizer).state_dict()
    step(parameters, torch.ones(SHAPE))  # others go on at once, and nothing of it is in the state
    optimizer.flush()
    gradbus.state(optimizer).load_state_dict(whole)
    assert_parts(optimizer.shard_state(), state)


def assert_parts(found, expected):
    assert found.keys() == expected.keys()
    for name, of in found.items():
        wanted = expected[name]["parts"]
        assert [part.item() for part in of["parts"]] == [part.item() for part in wanted], (found, expected)


def refused(mode, words, compression=None):
    try:
        make(mode, compression=compression)
        raise AssertionError("was accepted")
    except gradbus.GradbusError as error:
        assert words in str(error), error


def main():
    gradbus.init()
    commands = [
        steps, parameters, pulled, counting, optimizer, layers, ahead, slow, forever, refused, nothing_to_pull,
        other_memory,
    ]  # fmt: skip
    {command.__name__: command for command in commands}[sys.argv[1]](*sys.argv[2:])
    gradbus.shutdown()
    print("ok")


if __name__ == "__main__":
    main()

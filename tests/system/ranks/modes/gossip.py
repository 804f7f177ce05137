"""Gossip of one rank, against a simulation of all ranks in NumPy.

    gossip.py exact       every step of every rank bit for bit; mixing by its formulas; 4, 3, 2 ranks, 1
    gossip.py habits      a slow rank holds nobody up, groups, half precision, a partner that does not
                          come, what is refused
"""

import sys
import time

import gradbus.torch as gradbus
import numpy as np
import torch
from gossip_simulation import LR, MOMENTUM, Simulation, matchings, pairs_of_round, targets_of
from gradbus._modes.gossip import RandomPairs, Ring

SHAPES = {"a": (6, 4), "b": (8,), "c": (4, 4), "d": (30,)}
STEPS = 9


def start_of(rank):
    random = np.random.default_rng([77, rank])
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}


def make(mode, group, still=False):
    """Ranks begin apart, so that there is something to mix from the first round on."""
    start = start_of(group.rank())
    weights = {name: torch.nn.Parameter(torch.from_numpy(value)) for name, value in start.items()}
    sgd = torch.optim.SGD(weights.values(), lr=0.0 if still else float(LR), momentum=float(MOMENTUM))
    optimizer = gradbus.DistributedOptimizer(
        sgd, weights.items(), mode=mode, process_set=group, bucket_bytes=160
    )
    return weights, optimizer


def step(weights, optimizer, data, rank):
    optimizer.zero_grad()
    targets = targets_of(SHAPES, data, rank)
    sum(((w - torch.from_numpy(targets[n])) ** 2).sum() / 2 for n, w in weights.items()).backward()
    optimizer.step()


def everyones(weights, group):
    """By rank, as float64."""
    flat = torch.cat([weight.detach().reshape(-1) for weight in weights.values()])
    return gradbus.allgather(flat, process_set=group).view(group.size(), -1).numpy().astype(np.float64)


def assert_identical(weights, group):
    replicas = everyones(weights, group)
    assert (replicas == replicas[0]).all()


def options_of(mode):
    return dict(pair.split("=") for pair in mode.partition(":")[2].split(",") if pair)


def wait_for_result(optimizer):
    """A test's hook: every poll finds the result, so that what happens is determined."""
    (averaging,) = optimizer._gradbus.local._averaging
    while not averaging.is_there():
        time.sleep(0.001)


def exact(mode, group):
    """Bit for bit: a pair's mean is a sum of two, halved, and scale factors are powers of two."""
    options, rank = options_of(mode), group.rank()
    weights, optimizer = make(mode, group)
    simulated = Simulation(
        [start_of(each) for each in range(group.size())],
        options.get("topology", "random"), int(options.get("every", 1)), int(options.get("seed", 0)),
    )  # fmt: skip
    for number in range(2 * STEPS):
        if "wait" not in options:
            wait_for_result(optimizer)
        step(weights, optimizer, number, rank)
        simulated.step(number)
        for name, weight in weights.items():
            same = np.array_equal(weight.detach().numpy(), simulated.weights[rank][name])
            assert same, f"{mode}, {group.size()} ranks, step {number}: {name} differs"
        if number % STEPS == STEPS - 1:
            replicas = everyones(weights, group)
            assert group.size() == 1 or not (replicas == replicas[0]).all(), "nothing to flush"
            wanted, mean = simulated.flush()
            ended = optimizer.flush()
            assert ended == wanted, f"{mode}: {ended} rounds, not {wanted}"
            assert_identical(weights, group)
            for name, weight in weights.items():
                # Of up to four numbers, in an order that is the reduction's own: rounding.
                assert np.allclose(weight.detach().numpy(), mean[name], atol=1e-6), name
                for each in simulated.weights:
                    each[name][...] = weight.detach().numpy()
            assert optimizer.flush() == 0
    assert set(optimizer.staleness().values()) == {0}


def mixing(topology, group):
    """Steps that change nothing: what is left is gossip."""
    size = group.size()
    weights, optimizer = make(f"gossip:topology={topology},wait=1,seed=5", group, still=True)
    before = everyones(weights, group)
    mean = before.mean(0)
    distance = ((before - mean) ** 2).sum()
    first = distance
    step(weights, optimizer, 0, 0)  # begins round 0, ends none
    for number in range(6):
        step(weights, optimizer, 0, 0)
        after = everyones(weights, group)
        assert np.allclose(after.mean(0), mean, atol=1e-6), f"{topology}: the mean has moved"
        now = ((after - mean) ** 2).sum()
        if topology == "ring":
            # The second largest eigenvalue of W, 1/3 + 2/3 cos(2 pi / n); on a ring of four all but
            # the first are 1/3 or -1/3, on smaller ones 0: so not a bound but the distance itself.
            factor = {1: 1, 2: 0, 3: 0, 4: 1 / 3}[size] ** 2
            assert abs(now - factor * distance) <= 1e-5 * first, (size, number, now, distance)
        else:
            # Two that become their mean lose half the square of what is between them.
            pairs = pairs_of_round("random", size, 5, number)
            lost = sum(((before[i] - before[j]) ** 2).sum() / 2 for i, j in pairs)
            assert abs(now - (distance - lost)) <= 1e-5 * first, (size, number, now, distance, lost)
        before, distance = after, now
    # Any two matchings of four ranks make all of them equal; three ranks have an odd one out.
    assert size == 1 or now < (1e-12 if size in (2, 4) and topology == "random" else 0.05) * first


def families():
    """Every round a matching that leaves out one rank of an odd number at most; all are reached."""
    for size in [*range(1, 12), 16, 17, 33]:
        known = matchings(size)
        topology = RandomPairs(size, 9)
        assert list(topology.pairs()) == sorted({pair for pairs in known for pair in pairs})
        for number in range(12):
            partners = [list(topology.partners(rank, number)) for rank in range(size)]
            got = sorted((r, p[0]) for r, p in enumerate(partners) if p and r < p[0])
            assert got == pairs_of_round("random", size, 9, number), (size, number)
            assert len(got) == size // 2
            assert all(p == [] or partners[p[0]] == [r] for r, p in enumerate(partners))
        of_rank = [sum(rank in pair for pair in topology.pairs()) for rank in range(size)]
        assert max(of_rank) <= 1 + (size - 1).bit_length()
        near, reached = {0}, 0
        while len(near) > reached:
            reached = len(near)
            near |= {p for pair in topology.pairs() if set(pair) & near for p in pair}
        assert near == set(range(size))
        ring = Ring(size)
        assert sorted(ring.pairs()) == pairs_of_round("ring", size, 0, 0)
    orders = {tuple(RandomPairs(16, seed)._matchings[0]) for seed in (0, 1)}
    assert len(orders) == 1  # the matchings are the same whatever the seed, their order is not
    several = [[RandomPairs(16, seed).partners(0, r) for r in range(20)] for seed in (0, 1)]
    assert several[0] != several[1]


def exact_everywhere():
    if gradbus.rank() == 0:
        families()
    groups = [gradbus.global_process_set]
    groups += [gradbus.add_process_set(ranks) for ranks in ([2, 0, 3], [3, 0], [1])]
    for group in groups:
        if not group.included():
            continue
        for mode in ("gossip:topology=ring,wait=1", "gossip:wait=1", "gossip:every=3,seed=4294967295,wait=1",
                     "gossip:seed=7", "gossip:topology=ring,every=2"):  # fmt: skip
            exact(mode, group)
        mixing("ring", group)
        mixing("random", group)


def uneven():
    """The last rank stalls at every step. Gradients are integers and lr is 1; a mean of two adds a bit
    behind the point, which float64 has for all rounds there are: so all sums are exact."""
    weight = torch.nn.Parameter(torch.zeros(3000, dtype=torch.float64))
    sgd = torch.optim.SGD([weight], lr=1.0)
    optimizer = gradbus.DistributedOptimizer(sgd, [("w", weight)], mode="gossip")
    size, rank = gradbus.size(), gradbus.rank()
    counts = [60] * (size - 1) + [8]
    gradbus.barrier()
    began = time.monotonic()
    for _ in range(counts[rank]):
        time.sleep(0.2 if rank == size - 1 else 0.01)
        optimizer.zero_grad()
        (weight.sum() * size * (rank + 1)).backward()
        optimizer.step()
    print(f"seconds {time.monotonic() - began:.3f}")
    assert optimizer.flush() >= 1
    sums = [size * (each + 1) * count for each, count in enumerate(counts)]
    wanted = torch.full((3000,), -sum(sums) / size, dtype=torch.float64)
    assert torch.equal(weight.detach(), wanted), (weight[0].item(), wanted[0].item())
    assert optimizer.flush() == 0


def groups_and_half_precision():
    """A later group has pairs of its own; the mean of bfloat16 parameters is rounded once."""
    first = torch.nn.Parameter(torch.full((4,), float(gradbus.rank())))
    second = torch.nn.Parameter(torch.full((2, 2), 1.0 + gradbus.rank(), dtype=torch.bfloat16))
    sgd = torch.optim.SGD([first], lr=0.0)
    optimizer = gradbus.DistributedOptimizer(sgd, mode="gossip:topology=ring,wait=1")
    optimizer.add_param_group({"params": [second]})
    for _ in range(3):
        optimizer.zero_grad()
        (first.sum() + second.sum()).backward()
        optimizer.step()
    assert optimizer.flush() == 4  # of each group the round under way, then the mean
    mean = (gradbus.size() - 1) / 2
    assert torch.allclose(first.detach(), torch.full((4,), mean), atol=1e-5), first
    assert torch.equal(second.detach(), torch.full((2, 2), 1 + mean, dtype=torch.bfloat16)), second


def a_partner_that_does_not_come(group):
    """Its partner's second step gives up and says who; flush() goes on, and nothing is lost."""
    weight = torch.nn.Parameter(torch.zeros(3))
    sgd = torch.optim.SGD([weight], lr=1.0)
    optimizer = gradbus.DistributedOptimizer(sgd, process_set=group, mode="gossip:wait=1")

    def one():
        optimizer.zero_grad()
        weight.sum().backward()
        optimizer.step()

    one() if group.rank() == 0 else time.sleep(4)
    if group.rank() == 0:
        try:
            one()
            raise AssertionError("nobody was waited for")
        except gradbus.TimeoutError as error:
            assert "local" in str(error) and "/0+1/" in str(error), error
        time.sleep(2)
    assert optimizer.flush() == 2
    assert torch.equal(weight.detach(), torch.full((3,), -1.0)), weight


def mistakes():
    big = torch.nn.Parameter(torch.zeros(160, 128))

    def refused(says, mode, **options):
        try:
            gradbus.DistributedOptimizer(torch.optim.SGD([big], lr=0.1), [("big", big)], mode=mode, **options)
        except gradbus.InvalidError as error:
            assert says in str(error) and "GB-O911" in str(error), error
            return
        raise AssertionError(f"{mode} was taken")

    refused("option topology is \"star\", expected one of random, ring", "gossip:topology=star")
    refused('did you mean "gossip"', "gosip")
    refused("expected a whole number from 1 to 1000000", "gossip:every=0")
    refused("parameter 'big' is to be compressed by \"topk", "gossip", compression="topk:ratio=0.1")
    refused("expected a number from 0 to 1000000", "delayed:k=1,dc=-0.04")
    refused("option dc_decay adapts dc", "delayed:dc_decay=0.95")
    plain = torch.optim.SGD([big], lr=0.1)
    gradbus.DistributedOptimizer(plain, [("big", big)], mode="gossip", compression="none")


def main():
    what = sys.argv[1]
    gradbus.init(op_timeout=3 if what == "habits" else None)
    if what == "exact":
        exact_everywhere()
    else:
        uneven()
        groups_and_half_precision()
        mistakes()
        group = gradbus.add_process_set([0, gradbus.size() - 1])
        if group.included():
            a_partner_that_does_not_come(group)
    gradbus.shutdown()
    print("ok")


main()

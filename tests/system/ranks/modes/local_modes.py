"""Modes of parameters of one rank, against simulations of all ranks in one process.

    local_modes.py exact MODE...       localsgd, diloco: every step of every rank as simulated
    local_modes.py averaging N         averaging:every=N with a result at every poll: as simulated
    local_modes.py uneven              averaging:every_ms with a slow rank: exact integers at the end
    local_modes.py mixed               GRADBUS_MODE gives every parameter a mode of its own
    local_modes.py compressed SPEC     pseudo-gradients that travel compressed
    local_modes.py habits              schedulers, closures, groups, half precision, checkpoints
    local_modes.py late                a rank that does not come: TimeoutError, and on after it
    local_modes.py unequal MODE N...   numbers of steps of the ranks, which an error names
    local_modes.py mistakes            what is refused
"""

import sys
import time

import gradbus.torch as gradbus
import torch
from local_simulation import INNER, SHAPES, parameters, simulation_of, step

STEPS = 14


def assert_close(weights, wanted, what, atol=2e-6):
    for name, weight in weights.items():
        error = (weight - wanted[name]).abs().max().item()
        assert error <= atol, f"{what}: {name} differs by {error}"


def assert_identical(weights, what):
    """The same bits on all ranks."""
    flat = torch.cat([weight.detach().float().reshape(-1) for weight in weights.values()])
    everyones = gradbus.allgather(flat.view(torch.int32).clone()).view(gradbus.size(), -1)
    assert bool((everyones == everyones[0]).all()), f"{what}: replicas differ"


def assert_different(weights, what):
    """Ranks have gone ways of their own: what comes next has something to do."""
    flat = torch.cat([weight.detach().reshape(-1) for weight in weights.values()])
    everyones = gradbus.allgather(flat).view(gradbus.size(), -1)
    alone = gradbus.size() == 1
    assert alone or not bool((everyones == everyones[0]).all()), f"{what}: replicas are the same"


def exact(modes):
    for mode in modes:
        weights = parameters()
        plain = torch.optim.SGD(weights.values(), **INNER)
        optimizer = gradbus.DistributedOptimizer(plain, weights.items(), mode=mode)
        simulated = simulation_of(mode)
        for number in range(2 * STEPS):
            step(weights, optimizer, number)
            simulated.step(number)
            wanted = simulated.weights[gradbus.rank()]
            assert_close(weights, wanted, f"{mode}, step {number}")
            if number % STEPS == STEPS - 1:
                if "H=1," not in mode:
                    assert_different(weights, mode)
                ended = optimizer.flush()
                assert ended == simulated.flush(), f"{mode}: {ended} exchanges"
                assert_close(weights, wanted, f"{mode}, flushed")
                assert_identical(weights, mode)
                assert optimizer.flush() == 0
        assert set(optimizer.staleness().values()) == {0}


def wait_for_result(optimizer):
    """A test's hook: every poll finds the result, so that what happens is determined."""
    (averaging,) = optimizer._gradbus.local._averaging
    while not averaging.is_there():
        time.sleep(0.001)


def averaging(every):
    weights = parameters()
    plain = torch.optim.SGD(weights.values(), **INNER)
    optimizer = gradbus.DistributedOptimizer(plain, weights.items(), mode=f"averaging:every={every}")
    simulated = [parameters() for _ in range(gradbus.size())]
    inner = [torch.optim.SGD(each.values(), **INNER) for each in simulated]
    snapshots, began = None, 0
    for number in range(1, STEPS + 1):
        wait_for_result(optimizer)
        step(weights, optimizer, number)
        for rank, each in enumerate(simulated):
            step(each, inner[rank], number, rank)
        if snapshots:
            with torch.no_grad():
                for each, snapshot in zip(simulated, snapshots):
                    for name in SHAPES:
                        mean = sum(s[name] for s in snapshots) / len(snapshots)
                        each[name].add_(mean - snapshot[name])
            snapshots = None
        if number - began >= every:
            snapshots = [{n: w.detach().clone() for n, w in each.items()} for each in simulated]
            began = number
        assert_close(weights, simulated[gradbus.rank()], f"step {number}")
    assert_different(weights, "averaging")
    assert optimizer.flush() >= 1
    assert_identical(weights, "averaging")
    # The mean over the ranks is what their own steps made of it.
    wanted = {n: sum(each[n] for each in simulated) / len(simulated) for n in SHAPES}
    assert_close(weights, wanted, "flushed")
    assert optimizer.flush() == 0
    step(weights, optimizer, 99)  # training goes on
    assert optimizer.flush() >= 1


def uneven():
    """Rank 0 stalls at every step. Gradients are integers and lr is 1; a mean of four adds two bits
    behind the point, which float64 has for twenty rounds: so all sums are exact."""
    weight = torch.nn.Parameter(torch.zeros(3000, dtype=torch.float64))
    sgd = torch.optim.SGD([weight], lr=1.0)
    optimizer = gradbus.DistributedOptimizer(sgd, [("w", weight)], mode="averaging:every_ms=20")
    slow = gradbus.rank() == 0
    size = gradbus.size()
    counts = [8] + [100] * (size - 1)
    for again in range(2):
        began = time.monotonic()
        for _ in range(counts[gradbus.rank()]):
            time.sleep(0.4 if slow else 0.01)
            optimizer.zero_grad()
            (weight.sum() * size * (gradbus.rank() + 1)).backward()
            optimizer.step()
        print(f"seconds {time.monotonic() - began:.3f}")
        rounds = optimizer._gradbus.local._averaging[0]._begun
        ended = optimizer.flush()
        assert ended >= 1
        # Size times the mean over the ranks of what each one's steps sum up to.
        sums = [size * (rank + 1) * count for rank, count in enumerate(counts)]
        wanted = torch.full((3000,), -sum(sums) / size * (again + 1), dtype=torch.float64)
        assert torch.equal(weight.detach(), wanted), (weight[0].item(), wanted[0].item())
        assert rounds >= 2 * (again + 1), rounds
    assert optimizer.flush() == 0


def mixed():
    """synced, late (delayed:k=1), own (diloco), loose (averaging), paired (gossip): as if alone."""
    shapes = {"synced": (5,), "late": (40,), "own": (7, 3), "loose": (9,), "paired": (2, 6)}
    size, rank = gradbus.size(), gradbus.rank()

    def gradient(name, number, of):
        seed = 10000 * number + 100 * of + len(name)
        return torch.randint(-8, 9, shapes[name], generator=torch.Generator().manual_seed(seed)).float()

    weights = {name: torch.nn.Parameter(torch.zeros(shape)) for name, shape in shapes.items()}
    sgd = torch.optim.SGD(weights.values(), lr=1.0, momentum=0.5)
    optimizer = gradbus.DistributedOptimizer(sgd, weights.items())
    for number in range(10):
        optimizer.zero_grad()
        sum((w * gradient(n, number, rank)).sum() for n, w in weights.items()).backward()
        optimizer.step()
        assert torch.equal(weights["own"].grad, gradient("own", number, rank))
        assert torch.equal(weights["loose"].grad, gradient("loose", number, rank))
        assert torch.equal(weights["paired"].grad, gradient("paired", number, rank))
        mean = sum(gradient("synced", number, of) for of in range(size)) / size
        assert torch.equal(weights["synced"].grad, mean)
    stale = {"synced": 0, "late": 1, "own": 0, "loose": 0, "paired": 0}
    assert optimizer.staleness() == stale, optimizer.staleness()
    own_gradient = weights["own"].grad.clone()
    assert optimizer.flush() >= 4  # the late gradient, an outer step, two means
    assert torch.equal(weights["own"].grad, own_gradient)
    assert_identical(weights, "mixed")

    def velocity_sum(gradients):
        """SGD with momentum 0.5 from zero."""
        weight, velocity = torch.zeros_like(gradients[0]), torch.zeros_like(gradients[0])
        for each in gradients:
            velocity = 0.5 * velocity + each
            weight = weight - velocity
        return weight

    def mean_of(name, number):
        return sum(gradient(name, number, of) for of in range(size)) / size

    wanted = {
        "synced": velocity_sum([mean_of("synced", n) for n in range(10)]
                               + [torch.zeros(shapes["synced"])]),  # flush steps on zeros there
        "late": velocity_sum([torch.zeros(40)] + [mean_of("late", n) for n in range(10)]),
        # The outer step is 1 and plain, so in the end own is the mean, too.
        "own": velocity_sum([mean_of("own", n) for n in range(10)]),
        "loose": velocity_sum([mean_of("loose", n) for n in range(10)]),
        "paired": velocity_sum([mean_of("paired", n) for n in range(10)]),
    }  # fmt: skip
    assert_close(weights, wanted, "mixed", atol=1e-4)


def compressed(spec):
    """The mean of the ranks' minima is found, though each exchange carries a part only."""
    shape = (160, 128)
    weight = torch.nn.Parameter(torch.zeros(shape))
    bias = torch.nn.Parameter(torch.zeros(3))
    minima = [
        torch.randn(shape, generator=torch.Generator().manual_seed(rank))
        for rank in range(gradbus.size())
    ]
    mode = "diloco:H=2,outer_lr=0.5,outer_momentum=0"
    sgd = torch.optim.SGD([weight, bias], lr=0.05)
    named = [("weight", weight), ("bias", bias)]
    optimizer = gradbus.DistributedOptimizer(sgd, named, mode=mode, compression=spec)
    wanted = sum(minima) / len(minima)

    def train(steps):
        for _ in range(steps):
            optimizer.zero_grad()
            (((weight - minima[gradbus.rank()]) ** 2).sum() / 2 + bias.sum()).backward()
            optimizer.step()
        return ((weight.detach() - wanted).norm() / wanted.norm()).item()

    errors = [train(100), train(300)]
    optimizer.flush()
    assert_identical({"w": weight, "b": bias}, spec)
    assert errors[1] < 0.12 and errors[1] < errors[0], errors
    state = optimizer.compression_state()
    assert set(state["residual"]) == {"weight"}, state["residual"].keys()
    kept = gradbus.allreduce(state["residual"]["weight"])
    assert kept.norm() > 0
    optimizer.load_compression_state({part: {} for part in state})
    nothing = gradbus.allreduce(optimizer.compression_state()["residual"]["weight"])
    assert nothing.norm() == 0
    optimizer.load_compression_state(state)
    again = gradbus.allreduce(optimizer.compression_state()["residual"]["weight"])
    assert torch.allclose(again, kept, atol=1e-5)


def scheduler_and_groups():
    first, second = torch.nn.Parameter(torch.zeros(4)), torch.nn.Parameter(torch.zeros(2, 2))
    sgd = torch.optim.SGD([first], lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(sgd, step_size=1, gamma=0.5)
    optimizer = gradbus.DistributedOptimizer(sgd, mode="localsgd:H=2")
    with torch.no_grad():
        first.add_(gradbus.rank())  # the first step begins from rank 0's
    pull = float(gradbus.rank() + 1)
    mean = (gradbus.size() + 1) / 2
    optimizer.add_param_group({"params": [second], "lr": 2.0})
    for _ in range(3):
        optimizer.zero_grad()
        (pull * first.sum() + pull * second.sum()).backward()
        with optimizer.skip_synchronize():  # an inner step all the same
            optimizer.step()
        scheduler.step()
    assert optimizer.flush() == 2  # one fragment of each group
    assert torch.allclose(first.detach(), torch.full((4,), -1.75 * mean))  # 1 + 1/2 + 1/4
    assert torch.allclose(second.detach(), torch.full((2, 2), -3.5 * mean))


def closures():
    for make, mode in ((lambda p: torch.optim.SGD(p, lr=0.5), "localsgd:H=2"),
                       (lambda p: torch.optim.LBFGS(p, max_iter=8), "localsgd:H=1")):  # fmt: skip
        weight = torch.nn.Parameter(torch.ones(3))
        optimizer = gradbus.DistributedOptimizer(make([weight]), mode=mode)
        minimum = float(gradbus.rank())

        def closure(optimizer=optimizer, weight=weight, minimum=minimum):
            optimizer.zero_grad()
            loss = ((weight - minimum) ** 2).sum() / (1 + minimum)  # searches differ in length
            loss.backward()
            return loss

        losses = [float(optimizer.step(closure)) for _ in range(4)]
        assert len(losses) == 4
        optimizer.flush()
        assert_identical({"w": weight}, mode)


def half_precision():
    """The mean of bfloat16 parameters is rounded once; global copies keep what they cannot hold."""
    weight = torch.nn.Parameter(torch.full((5,), 1.0, dtype=torch.bfloat16))
    sgd = torch.optim.SGD([weight], lr=1.0)
    optimizer = gradbus.DistributedOptimizer(sgd, mode="localsgd:H=1")
    (weight.float() * 2.0 ** (-7 + gradbus.rank())).sum().backward()
    optimizer.step()
    everyones = [
        (torch.tensor(1.0) - 2.0 ** (-7 + rank)).bfloat16().float() for rank in range(gradbus.size())
    ]
    mean = (sum(everyones) / gradbus.size()).bfloat16()
    assert torch.equal(weight.detach(), mean.expand(5)), (weight[0], mean)
    assert_identical({"w": weight}, "bfloat16")
    weight = torch.nn.Parameter(torch.full((5,), 1.0, dtype=torch.bfloat16))
    sgd = torch.optim.SGD([weight], lr=1.0)
    mode = "diloco:H=1,outer_lr=0.125,outer_momentum=0"
    optimizer = gradbus.DistributedOptimizer(sgd, [("w", weight)], mode=mode)
    (weight.float() * 2.0**-7).sum().backward()
    optimizer.step()
    assert torch.equal(optimizer.outer_state()["global"]["w"], torch.full((5,), 1 - 2.0**-10))
    assert torch.equal(weight.detach(), torch.ones(5, dtype=torch.bfloat16))


def checkpoint():
    """A new optimizer with the old one's outer state goes on as the old one does."""
    mode = "diloco:H=3,outer_lr=0.5,fragments=3"
    inner = {"lr": 0.125}
    weights = parameters()
    sgd = torch.optim.SGD(weights.values(), **inner)
    optimizer = gradbus.DistributedOptimizer(sgd, weights.items(), mode=mode)
    assert optimizer.outer_state() == {"global": {}, "momentum": {}, "mean_square": {}}
    for number in range(4):
        step(weights, optimizer, number)
    try:
        optimizer.outer_state()
        raise AssertionError("a state was read between flushes")
    except gradbus.BusyError as error:
        assert "flush() first" in str(error), error
    optimizer.flush()
    state = optimizer.outer_state()
    others = {name: torch.nn.Parameter(torch.zeros(shape)) for name, shape in SHAPES.items()}
    sgd = torch.optim.SGD(others.values(), **inner)
    restored = gradbus.DistributedOptimizer(sgd, others.items(), mode=mode)
    try:
        restored.load_outer_state({**state, "global": {"z": torch.zeros(1)}})
        raise AssertionError("a state of another model was loaded")
    except gradbus.InvalidError as error:
        assert "the global of 'a'" in str(error), error
    restored.load_outer_state(state)
    for name in SHAPES:
        assert torch.equal(others[name], weights[name]), name
    for number in range(4, 12):
        step(weights, optimizer, number)
        step(others, restored, number)
    for name in SHAPES:
        assert torch.equal(others[name], weights[name]), name
    assert state["momentum"]["a"].abs().max() > 0


def late():
    """Rank 0 waits in vain for the others' step, goes on with flush(), and loses nothing."""
    weight = torch.nn.Parameter(torch.zeros(3))
    sgd = torch.optim.SGD([weight], lr=1.0)
    optimizer = gradbus.DistributedOptimizer(sgd, mode="localsgd:H=2")

    def one():
        optimizer.zero_grad()
        weight.sum().backward()
        optimizer.step()

    one()
    if gradbus.rank() == 0:
        try:
            one()
            raise AssertionError("nobody was waited for")
        except gradbus.TimeoutError as error:
            assert "local.0.0/" in str(error), error
        time.sleep(2)
        assert optimizer.flush() == 1
    else:
        time.sleep(3)
        one()
        assert optimizer.flush() == 0
    assert torch.equal(weight.detach(), torch.full((3,), -2.0)), weight


def unequal(mode, *counts):
    """Each rank makes its number of steps and calls flush(). In the second epoch, so that counts begin anew."""
    weight = torch.nn.Parameter(torch.zeros(6))
    optimizer = gradbus.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), mode=mode)

    def epoch(steps):
        for _ in range(steps):
            optimizer.zero_grad()
            weight.sum().backward()
            optimizer.step()
        optimizer.flush()

    epoch(3)
    for attempt in range(2):  # whoever goes on gets the same error, and waits for nobody
        try:
            epoch(int(counts[gradbus.rank()]) if attempt == 0 else 0)
        except gradbus.MismatchError as error:
            said = str(error)
        else:
            raise AssertionError(f"nothing is said of {counts} steps")
        assert f"different numbers of steps in mode {mode}" in said, said
        assert f"{min(map(int, counts))} by rank" in said and "GB-O902" in said, said


def mistakes():
    def refused(says, mode, make=lambda w: torch.optim.SGD(w, lr=0.1)):
        weights = parameters()
        try:
            gradbus.DistributedOptimizer(make(weights.values()), weights.items(), mode=mode)
        except gradbus.InvalidError as error:
            assert says in str(error) and ("GB-O911" in str(error) or "LBFGS" in says), error
            return
        raise AssertionError(f"{mode} was taken")

    refused('did you mean "localsgd"', "localsdg:H=2")
    refused("give one of every=STEPS and every_ms=MILLISECONDS", "averaging")
    refused("give one of every=STEPS and every_ms=MILLISECONDS", "averaging:every=2,every_ms=3")
    refused("option fragments is above H", "diloco:H=2,fragments=3")
    refused("option overlap must be below H / fragments", "diloco:H=4,fragments=2,overlap=2")
    refused("expected a number from 0 to 0.9999", "diloco:outer_momentum=1")


def main():
    what, arguments = sys.argv[1], sys.argv[2:]
    gradbus.init(op_timeout=2 if what == "late" else None)
    if what == "exact":
        exact(arguments)
    elif what == "averaging":
        averaging(int(arguments[0]))
    elif what == "compressed":
        compressed(*arguments)
    elif what == "unequal":
        unequal(*arguments)
    elif what == "habits":
        for part in (scheduler_and_groups, closures, half_precision, checkpoint):
            part()
    else:
        {"uneven": uneven, "mixed": mixed, "late": late, "mistakes": mistakes}[what]()
    gradbus.shutdown()
    print("ok")


main()

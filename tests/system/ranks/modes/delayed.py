"""Delayed exchanges of one rank, against a simulation of delayed SGD in one process.

    delayed.py exact MODE COMPRESSION     bit for bit the simulation; nothing is lost by flush()
    delayed.py compensated MODE...        the same with a delay compensation, which is NumPy's
    delayed.py counting MODE              integers: every rank's every gradient arrives exactly once
    delayed.py memory MODE COMPRESSION    what was sent and what is kept add up to all gradients
    delayed.py interrupted FILE           two ranks: a flush that runs out of time goes on where it was
    delayed.py together                   gradbus.flush() and staleness() are of all optimizers that live
    delayed.py slow MODE STEPS            rank 0 stalls now and then; prints the seconds of each rank
"""

import collections
import gc
import pathlib
import sys
import time

import gradbus.torch as gradbus
import numpy as np
import torch

SHAPE = (160, 128)  # enough elements to be compressed
STEPS = 7


def gradient_of(rank, step):
    return torch.randn(SHAPE, generator=torch.Generator().manual_seed(1000 * step + rank))


def make(mode, compression=None, lr=0.5, momentum=0.9, op=gradbus.Average, dtype=torch.float32, start=None, **more):
    begin = start or (torch.zeros(SHAPE, dtype=dtype), torch.zeros(3))
    weight, bias = (torch.nn.Parameter(tensor.detach().clone()) for tensor in begin)
    plain = torch.optim.SGD([weight, bias], lr=lr, momentum=momentum)
    named = [("weight", weight), ("bias", bias)]
    distributed = gradbus.DistributedOptimizer(plain, named, mode=mode, compression=compression, op=op, **more)
    return weight, bias, distributed


def step(parameters, gradient):
    weight, bias, optimizer = parameters
    optimizer.zero_grad()
    ((weight * gradient).sum() + bias.sum()).backward()
    optimizer.step()


def as_it_is(gradient, now, then):
    return gradient


def simulate(delay, means, flushes_at, corrected=as_it_is):
    """Delayed SGD in one process: step n applies means[n - delay], zeros before; a flush the rest."""
    weight = torch.nn.Parameter(torch.zeros_like(means[0]))
    optimizer = torch.optim.SGD([weight], lr=0.5, momentum=0.9)
    waiting = collections.deque()

    def apply(gradient, then):
        weight.grad = corrected(gradient, weight.detach(), then).clone()
        optimizer.step()

    for number, mean in enumerate(means):
        waiting.append((mean, weight.detach().clone()))
        if len(waiting) > delay:
            apply(*waiting.popleft())
        else:
            weight.grad = torch.zeros_like(weight)
            optimizer.step()
        if number in flushes_at:
            while waiting:
                apply(*waiting.popleft())
    return weight.detach()


class Compensation:
    """DC-ASGD's formulas (Zheng et al. 2017), in NumPy's float32."""

    def __init__(self, strength, decay=None):
        self.strength, self.decay = np.float32(strength), decay
        self.mean_square = np.float32(0)

    def __call__(self, gradient, now, then):
        g = gradient.float().numpy()
        correction = self.strength * ((g * g) * (now.float().numpy() - then.float().numpy()))
        if self.decay is not None:
            fresh = np.float32(1 - self.decay) * (g * g)
            self.mean_square = np.float32(self.decay) * self.mean_square + fresh
            correction = correction / np.sqrt(self.mean_square + np.float32(1e-7))
        return torch.from_numpy(g + correction).to(gradient.dtype)


def synchronous_means(dtype=torch.float32):
    """As an optimizer of the same parameters gets them: the same bits, so the simulation can be exact."""
    weight, bias, optimizer = make("sync", "none", dtype=dtype)
    means = []
    for number in range(2 * STEPS):
        optimizer.zero_grad()
        ((weight * gradient_of(gradbus.rank(), number)).sum() + bias.sum()).backward()
        optimizer.synchronize()
        means.append(weight.grad.clone())
        with optimizer.skip_synchronize():
            optimizer.step()
    return means


def exact(mode, compression):
    parameters = make(mode, compression)
    weight, _, optimizer = parameters
    means = synchronous_means()
    for number in range(2 * STEPS):
        step(parameters, gradient_of(gradbus.rank(), number))
        if number % STEPS == STEPS - 1:
            delay = int(mode.partition("k=")[2] or 1)
            assert optimizer.flush() == min(delay, STEPS), mode
            assert optimizer.flush() == 0
    simulated = simulate(delay, means, (STEPS - 1, 2 * STEPS - 1))
    if compression == "none":
        assert torch.equal(weight.detach(), simulated), (weight.detach() - simulated).abs().max()
    else:
        error = (weight.detach() - simulated).norm() / simulated.norm()
        assert error < 0.05, error
    assert set(optimizer.staleness().values()) == {-1}


def compensated(modes):
    """Also where gradients are summed, and for half precision, whose squares would be zeros."""
    means = synchronous_means()
    for mode in modes:
        options = dict(pair.split("=") for pair in mode.partition(":")[2].split(","))
        delay = int(options.get("k", 1))
        decay = options.get("dc_decay")
        follow_compensation(mode, delay, means, options["dc"], decay and float(decay))
    half = [mean.bfloat16() for mean in means]
    follow_compensation("delayed:k=2,dc=0.25", 2, half, 0.25, None, dtype=torch.bfloat16)
    follow_compensation("delayed:k=2,dc=0.25", 2, means, 0.25, None, op=gradbus.Sum)
    not_finite()
    waited_for_twice()


def as_from_a_checkpoint(weight, bias, optimizer, **options):
    others = weight, bias, restored = make(**options, dtype=weight.dtype, start=(weight, bias))
    restored.load_state_dict(optimizer.state_dict())
    restored.load_outer_state(optimizer.outer_state())
    return others


def follow_compensation(mode, delay, means, strength, decay, op=gradbus.Average, dtype=torch.float32):
    size = gradbus.size()
    by_size = op == gradbus.Sum  # a power of two in the tests, so multiplying by it is exact
    # Every rank has the same gradient, the mean, so that a sum of halves is exact too.
    weight, bias, optimizer = make(mode, op=op, dtype=dtype)
    for number in range(2 * STEPS):
        optimizer.zero_grad()
        ((weight * (means[number] / size if by_size else means[number])).sum() + bias.sum()).backward()
        optimizer.step()
        assert optimizer.staleness()["weight"] == (delay if number % STEPS >= delay else -1)
        if number % STEPS == STEPS - 1:
            assert optimizer.flush() == min(delay, STEPS), mode
            assert optimizer.flush() == 0
            weight, bias, optimizer = as_from_a_checkpoint(weight, bias, optimizer, mode=mode, op=op)
    flushes = (STEPS - 1, 2 * STEPS - 1)
    rule = Compensation(strength, decay)
    if by_size:
        # The sum of these gradients is that mean, so the mean that counts is one over size of it.
        def corrected(gradient, now, then):
            return rule(gradient / size, now, then) * size
    else:
        corrected = rule
    simulated = simulate(delay, means, flushes, corrected)
    assert bool(torch.isfinite(simulated).all()), mode
    assert torch.equal(weight.detach(), simulated), (mode, (weight.detach() - simulated).abs().max())
    assert not torch.equal(simulated, simulate(delay, means, flushes)), f"{mode} corrects nothing"
    flat = weight.detach().float().reshape(-1)
    everyones = gradbus.allgather(flat).view(size, -1)
    assert bool((everyones == everyones[0]).all()), f"{mode}: replicas differ"


def not_finite():
    """One gradient that is not finite is passed on, and costs the steps after it nothing."""
    weight = torch.nn.Parameter(torch.zeros(3))
    sgd = torch.optim.SGD([weight], lr=0.5)
    optimizer = gradbus.DistributedOptimizer(sgd, [("w", weight)], mode="delayed:dc=2,dc_decay=0.5")
    found = []
    for number in range(5):
        optimizer.zero_grad()
        (weight.sum() * (float("nan") if number == 1 else 1.0)).backward()
        optimizer.synchronize()
        found.append(bool(torch.isfinite(weight.grad).all()))
        if found[-1]:
            with optimizer.skip_synchronize():
                optimizer.step()
        else:
            optimizer.zero_grad()  # as a loss scaler does
    assert found == [True, True, False, True, True], found
    assert bool(torch.isfinite(weight).all())


def waited_for_twice():
    """After another bucket's TimeoutError those that are there are waited for again: to no effect."""
    weight, bias, optimizer = make("delayed:k=1,dc=0.5")
    for number in range(3):
        optimizer.zero_grad()
        ((weight * gradient_of(0, number)).sum() + bias.sum()).backward()
        optimizer.synchronize()
        found = weight.grad.clone()
        for bucket in optimizer._gradbus.exchange.buckets:
            bucket.wait()
        assert torch.equal(weight.grad, found), number
        optimizer.step()
    optimizer.flush()


def counting(mode):
    """Gradients are small integers and lr is 1, so every sum is exact in float32."""
    weight, bias, optimizer = parameters = make(mode, lr=1.0, momentum=0.0)
    for number in range(STEPS):
        step(parameters, torch.full(SHAPE, float(gradbus.size() * (number + 1))))
    optimizer.flush()
    wanted = -gradbus.size() * sum(range(1, STEPS + 1))
    assert torch.equal(weight.detach(), torch.full(SHAPE, float(wanted))), weight[0, 0].item()
    assert torch.equal(bias.detach(), torch.full((3,), float(-STEPS)))


def memory(mode, compression):
    """Every delay slot has a residual; a state that was read may be written back."""
    weight, bias, optimizer = parameters = make(mode, compression, lr=1.0, momentum=0.0)
    for number in range(STEPS):
        step(parameters, gradient_of(gradbus.rank(), number))
    try:
        optimizer.compression_state()
        raise AssertionError("a state was read while results were under way")
    except gradbus.BusyError as error:
        assert "drain it first" in str(error), error
    optimizer.flush()
    state = optimizer.compression_state()
    kept = gradbus.allreduce(state["residual"]["weight"])
    wanted = sum(
        gradient_of(rank, number) for rank in range(gradbus.size()) for number in range(STEPS)
    )
    assert kept.norm() > 0
    assert torch.allclose(kept - weight.detach(), wanted / gradbus.size(), atol=1e-4)
    optimizer.load_compression_state(state)
    again = gradbus.allreduce(optimizer.compression_state()["residual"]["weight"])
    assert torch.allclose(again, kept, atol=1e-5)


def interrupted(file):
    """Rank 1 brings its weight's gradient only when rank 0 has waited for it in vain, its bias's before."""
    timed_out = pathlib.Path(file)
    weight, bias, optimizer = parameters = make("delayed:k=1", lr=1.0, momentum=0.0, bucket_bytes=1024)
    assert [s.name for b in optimizer._gradbus.exchange.buckets for s in b.slots] == ["bias", "weight"]

    def wait(_gradient):
        deadline = time.monotonic() + 60
        while not timed_out.exists() and time.monotonic() < deadline:
            time.sleep(0.01)

    step(parameters, torch.zeros(SHAPE))  # the first one waits for all ranks, to compare parameters
    optimizer.flush()
    if gradbus.rank() == 1:
        weight.register_hook(wait)
    step(parameters, torch.ones(SHAPE))
    if gradbus.rank() == 0:
        try:
            optimizer.flush()
            raise AssertionError("nobody was waited for")
        except gradbus.TimeoutError:
            timed_out.touch()
    optimizer.flush()
    assert torch.equal(weight.detach(), torch.full(SHAPE, -1.0)), weight
    assert torch.equal(bias.detach(), torch.full((3,), -2.0)), bias


def together():
    """Two optimizers of which one goes away; both have a "weight"."""
    first, second = make("delayed:k=1"), make("delayed:k=2", momentum=0.0, lr=1.0)
    gradient = torch.ones(SHAPE)
    for _ in range(3):
        step(first, gradient)
        step(second, gradient)
    assert gradbus.staleness() == {"weight": 2, "bias": 2}, gradbus.staleness()
    assert gradbus.flush() == 1 + 2
    assert torch.equal(second[0].detach(), -3 * gradient)
    step(first, gradient)
    step(second, gradient)
    del second
    gc.collect()
    assert gradbus.flush() == 1
    assert gradbus.staleness() == first[2].staleness()
    gradbus.shutdown()
    for function in (gradbus.flush, gradbus.staleness):
        try:
            function()
            raise AssertionError("there is no session")
        except gradbus.ClosedError:
            pass


def slow(mode, steps):
    """Every fourth step of rank 0 and, two steps later, of rank 1 takes long: others need not wait."""
    parameters = make(mode)
    gradient = torch.ones(SHAPE)
    step(parameters, gradient)
    began = time.monotonic()
    for number in range(steps):
        time.sleep(0.25 if number % 4 == 2 * gradbus.rank() else 0.01)
        step(parameters, gradient)
    parameters[2].flush()
    print(f"seconds {time.monotonic() - began:.3f}")


def main():
    gradbus.init(op_timeout=3 if sys.argv[1] == "interrupted" else None)
    if sys.argv[1] == "interrupted":
        interrupted(sys.argv[2])
    elif sys.argv[1] == "together":
        together()
    elif sys.argv[1] == "exact":
        exact(*sys.argv[2:])
    elif sys.argv[1] == "memory":
        memory(*sys.argv[2:])
    elif sys.argv[1] == "compensated":
        compensated(sys.argv[2:])
    elif sys.argv[1] == "counting":
        counting(sys.argv[2])
    else:
        slow(sys.argv[2], int(sys.argv[3]))
    gradbus.shutdown()
    print("ok")


main()

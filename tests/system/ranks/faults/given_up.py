"""A rank: steps that it gives up. Replicas stay equal, or each rank that could go on wrongly is refused.

    given_up.py FOLDER     two ranks, which wait for files there
"""

import pathlib
import sys
import time

import gradbus.torch as gradbus
import torch

FOLDER = pathlib.Path(sys.argv[1])
TIMEOUT_S = 3
DEADLINE_S = 60


class Interrupted(torch.optim.SGD):
    """Ctrl-C comes when rank 0 has stepped one parameter."""

    interrupts = False

    def step(self, closure=None):
        if self.interrupts and gradbus.rank() == 0:
            with torch.no_grad():
                self.param_groups[0]["params"][0].add_(1)
            raise KeyboardInterrupt
        return super().step(closure)


def wait_for(name):
    began = time.monotonic()
    while not (FOLDER / name).exists():
        assert time.monotonic() - began < DEADLINE_S, name
        time.sleep(0.02)


def new_model():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))


def wrap(model, kind=torch.optim.SGD, **options):
    return gradbus.DistributedOptimizer(kind(model.parameters(), lr=0.1), model.named_parameters(), **options)


def backward(model):
    model(torch.full((2, 3), gradbus.rank() + 1.0)).square().sum().backward()


def step(model, optimizer):
    optimizer.zero_grad()
    backward(model)
    optimizer.step()


def refused(parts, call):
    try:
        call()
    except gradbus.BusyError as error:
        assert "GB-O905" in str(error) and all(part in str(error) for part in parts), error
    else:
        raise AssertionError(f"no error about {parts}")


def raises(kind, call):
    try:
        call()
    except kind:
        return
    raise AssertionError(f"no {kind}")


def assert_equal(model):
    everywhere = gradbus.allgather_object([parameter.tolist() for parameter in model.parameters()])
    assert everywhere[0] == everywhere[1], everywhere


def case_a_wait_that_ended(schedule, wait):
    """Rank 1 is late and steps on the result. Rank 0 must take it, too."""
    model = new_model()
    optimizer = wrap(model, schedule=schedule, wait=wait)
    step(model, optimizer)
    optimizer.flush()
    gradbus.barrier()
    name, stepped = f"{schedule}-{wait}", []
    if gradbus.rank() == 0:
        optimizer.zero_grad()

        def whole():
            backward(model)
            optimizer.step()
            stepped.append(True)  # later, when its result is there
            optimizer.flush()

        raises(gradbus.TimeoutError, whole)
        if not stepped:
            refused(["rank 0 gave up waiting for gradients (TimeoutError P110)", "call step()"], optimizer.zero_grad)
            refused(["rank 0 gave up waiting"], optimizer.zero_grad)
        (FOLDER / name).touch()
        if not stepped:
            optimizer.step()
    else:
        wait_for(name)
        step(model, optimizer)
    step(model, optimizer)
    assert_equal(model)


def case_a_step_in_parts():
    model = new_model()
    optimizer = wrap(model, Interrupted)
    step(model, optimizer)
    Interrupted.interrupts = True
    if gradbus.rank() == 0:
        raises(KeyboardInterrupt, lambda: step(model, optimizer))
        for call in (optimizer.zero_grad, optimizer.step, lambda: backward(model)):
            refused(["rank 0 gave up a step (KeyboardInterrupt)", "broadcast the parameters"], call)
    else:
        step(model, optimizer)
    Interrupted.interrupts = False
    gradbus.broadcast_parameters(model, root_rank=0)
    optimizer = wrap(model, Interrupted)
    step(model, optimizer)
    assert_equal(model)


def case_a_backward_pass_that_failed():
    """On rank 0, when the last layers' gradients are on their way."""
    model = new_model()
    optimizer = wrap(model, bucket_bytes=1, schedule="ddp")
    for _ in range(2):
        step(model, optimizer)
    before = [parameter.tolist() for parameter in model.parameters()]
    optimizer.zero_grad()
    if gradbus.rank() == 0:
        hook = model[0].weight.register_hook(lambda _: 1 / 0)
        raises(ZeroDivisionError, lambda: backward(model))
        hook.remove()
        optimizer.zero_grad()
    else:
        parts = ["another rank left backward() by an exception", "broadcast the parameters"]
        refused(parts, lambda: backward(model))
        for call in (optimizer.zero_grad, optimizer.step, lambda: backward(model)):
            refused(parts, call)
    assert before == [parameter.tolist() for parameter in model.parameters()]
    gradbus.broadcast_parameters(model, root_rank=0)
    optimizer = wrap(model)
    step(model, optimizer)
    assert_equal(model)


gradbus.init(op_timeout=TIMEOUT_S)
case_a_wait_that_ended("ddp", "backward")
case_a_wait_that_ended("ddp", "step")
case_a_wait_that_ended("bytescheduler", "backward")
case_a_step_in_parts()
case_a_backward_pass_that_failed()
print("ok")

"""A rank: a step() that was replaced before DistributedOptimizer() takes part in every step, as in one process."""

import functools
import types

import gradbus.torch as gradbus
import torch
import training_cases
from gradbus.torch._exchange.holders import sees_all_readers
from torch.optim import lr_scheduler
from training_cases import case, mlp, sgd


def shrink(gradients):
    for gradient in gradients:
        gradient.mul_(0.25)


def gradients_of(optimizer):
    return [p.grad for group in optimizer.param_groups for p in group["params"]]


def put(optimizer):
    """A function in the instance, which calls the step of before."""
    before = optimizer.step

    def step():
        shrink(gradients_of(optimizer))
        before()

    optimizer.step = step


def put_method(optimizer):
    before = optimizer.step

    def step(self):
        shrink(gradients_of(self))
        before()

    optimizer.step = types.MethodType(step, optimizer)


def put_wrapper(optimizer):
    """It looks like the one within."""
    before = optimizer.step

    @functools.wraps(before)
    def step(*arguments):
        shrink(gradients_of(optimizer))
        return before(*arguments)

    optimizer.step = step


def put_every_second(optimizer):
    before, calls = optimizer.step, []

    def step():
        calls.append(1)
        if len(calls) % 2:
            before()

    optimizer.step = step


def train(training, change, schedules=None):
    """`schedules`: when a scheduler is made, "before" or "after" the change of the optimizer."""
    model = mlp()
    optimizer = sgd(model)
    scheduler = lr_scheduler.StepLR(optimizer, 2) if schedules == "before" else None
    change(optimizer)
    if schedules == "after":
        scheduler = lr_scheduler.StepLR(optimizer, 2)
    return training.loop(model, optimizer, after_step=lambda *_: scheduler and scheduler.step(), bucket_bytes=400)


for changed in (put, put_method, put_wrapper, put_every_second):
    case(functools.partial(train, change=changed), changed.__name__)
    case(functools.partial(train, change=changed, schedules="before"), f"{changed.__name__} after a scheduler")
case(functools.partial(train, change=put_method, schedules="after"), "a scheduler after put_method")


@case(name="a wrapper of the class's step")
def of_class(training):
    real = torch.optim.SGD.step

    @functools.wraps(real)
    def step(self, closure=None):
        shrink(gradients_of(self))
        return real(self, closure)

    torch.optim.SGD.step = step
    try:
        return train(training, lambda _: None)
    finally:
        torch.optim.SGD.step = real


def check_what_is_put_off():
    """A scheduler's own wrapper is no obstacle, made before DistributedOptimizer() or after."""
    for schedules in (None, "before", "after"):
        model = mlp()
        optimizer = sgd(model)
        if schedules == "before":
            lr_scheduler.StepLR(optimizer, 2)
        optimizer = gradbus.DistributedOptimizer(optimizer, model.named_parameters())
        if schedules == "after":
            lr_scheduler.StepLR(optimizer, 2)
        training_cases.step(model, optimizer, torch.ones(2, 6), torch.ones(2, 3))
        training_cases.step(model, optimizer, torch.ones(2, 6), torch.ones(2, 3))
        assert optimizer._gradbus.exchange.deferred.is_stepped == sees_all_readers(), schedules
        optimizer.flush()


torch.set_num_threads(1)
gradbus.init()
wrong = training_cases.run([])
assert not wrong, wrong
check_what_is_put_off()

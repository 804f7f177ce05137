"""Trainings with torch.compile, compiled autograd and autocast. For training_cases.py.

Cases named "compiled_..." only trace forward and backward. Those named "inductor_..." use the default of torch.compile,
which makes programs with a C++ compiler and takes minutes.
"""

import contextlib
import functools

import torch
from torch.nn import functional as F
from training_cases import case, mlp, step

COMPILED, INDUCTOR = ("compiled", "aot_eager"), ("inductor", "inductor")


def compiled_case(*compilers):
    """Registers the case once for each compiler."""

    def add(function):
        for prefix, backend in compilers:
            case(functools.partial(function, backend=backend), name=f"{prefix}_{function.__name__}")
        return function

    return add


def adam(model):
    return torch.optim.Adam(model.parameters(), 0.01)


@compiled_case(COMPILED, INDUCTOR)
def model(training, backend):
    model = mlp()
    optimizer = training.wrap(adam(model), model)
    compiled = torch.compile(model, backend=backend)
    for x, y in training.batches():
        optimizer.zero_grad()
        F.mse_loss(compiled(x), y).backward()
        optimizer.step()
    return model


@compiled_case(COMPILED)
def before_it_is_wrapped(training, backend):
    """With the names of the compiled module, and a loss that is compiled, too."""
    model = mlp()
    compiled = torch.compile(model, backend=backend)
    loss = torch.compile(lambda x, y: F.mse_loss(compiled(x), y), backend=backend)
    optimizer = training.wrap(adam(compiled), compiled)
    for x, y in training.batches():
        optimizer.zero_grad()
        loss(x, y).backward()
        optimizer.step()
    return model


@compiled_case(COMPILED, INDUCTOR)
def autograd(training, backend):
    model = mlp()
    optimizer = training.wrap(adam(model), model)
    with torch._dynamo.config.patch(compiled_autograd=True) if training.distributed else contextlib.nullcontext():
        forward_and_backward = torch.compile(lambda x, y: F.mse_loss(model(x), y).backward(), backend=backend)
        for x, y in training.batches():
            optimizer.zero_grad()
            forward_and_backward(x, y)
            optimizer.step()
    return model


@compiled_case(COMPILED)
def clipping(training, backend):
    model = mlp()
    clip = torch.compile(lambda: torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1), backend=backend)
    return training.loop(model, adam(model), before_step=lambda *_: clip())


@compiled_case(COMPILED)
def call_of_step(training, backend):
    model = mlp()
    optimizer = training.wrap(adam(model), model)
    make_step = torch.compile(lambda: optimizer.step(), backend=backend) if training.distributed else optimizer.step
    for x, y in training.batches():
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        make_step()
    return model


@compiled_case(COMPILED)
def from_zero_grad_to_step(training, backend):
    model = mlp()
    optimizer = training.wrap(adam(model), model)
    whole = torch.compile(step, backend=backend) if training.distributed else step
    for x, y in training.batches():
        whole(model, optimizer, x, y)
    return model


@case(tolerance=2e-2)  # gradients are summed in bfloat16
def autocast_to_bfloat16(training):
    model = mlp()
    optimizer = training.wrap(adam(model), model)
    for x, y in training.batches():
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.mse_loss(model(x).float(), y)
        loss.backward()
        optimizer.step()
    return model

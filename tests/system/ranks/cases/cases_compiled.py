"""Trainings with torch.compile, compiled autograd and autocast. For training_cases.py."""

import contextlib

import torch
from torch.nn import functional as F
from training_cases import case, mlp, step

BACKEND = "aot_eager"  # traces forward and backward as the default does, and needs no compiler


def adam(model):
    return torch.optim.Adam(model.parameters(), 0.01)


@case
def compiled_model(training):
    model = mlp()
    optimizer = training.wrap(adam(model), model)
    compiled = torch.compile(model, backend=BACKEND)
    for x, y in training.batches():
        optimizer.zero_grad()
        F.mse_loss(compiled(x), y).backward()
        optimizer.step()
    return model


@case
def compiled_before_it_is_wrapped(training):
    """With the names of the compiled module, and a loss that is compiled, too."""
    model = mlp()
    compiled = torch.compile(model, backend=BACKEND)
    loss = torch.compile(lambda x, y: F.mse_loss(compiled(x), y), backend=BACKEND)
    optimizer = training.wrap(adam(compiled), compiled)
    for x, y in training.batches():
        optimizer.zero_grad()
        loss(x, y).backward()
        optimizer.step()
    return model


@case
def compiled_autograd(training):
    model = mlp()
    optimizer = training.wrap(adam(model), model)
    with torch._dynamo.config.patch(compiled_autograd=True) if training.distributed else contextlib.nullcontext():
        forward_and_backward = torch.compile(lambda x, y: F.mse_loss(model(x), y).backward(), backend=BACKEND)
        for x, y in training.batches():
            optimizer.zero_grad()
            forward_and_backward(x, y)
            optimizer.step()
    return model


@case
def compiled_clipping(training):
    model = mlp()
    clip = torch.compile(lambda: torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1), backend=BACKEND)
    return training.loop(model, adam(model), before_step=lambda *_: clip())


@case
def compiled_call_of_step(training):
    model = mlp()
    optimizer = training.wrap(adam(model), model)
    make_step = torch.compile(lambda: optimizer.step(), backend=BACKEND) if training.distributed else optimizer.step
    for x, y in training.batches():
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        make_step()
    return model


@case
def compiled_from_zero_grad_to_step(training):
    model = mlp()
    optimizer = training.wrap(adam(model), model)
    whole = torch.compile(step, backend=BACKEND) if training.distributed else step
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

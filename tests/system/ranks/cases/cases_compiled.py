"""Trainings with torch.compile, compiled autograd and autocast. For training_cases.py."""

import contextlib

import torch
from torch.nn import functional as F
from training_cases import case, mlp

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

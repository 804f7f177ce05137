"""Cases: what programs do with gradients, and settings of torch around the training."""

import warnings

import gradbus.torch as gradbus
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode
from training_cases import case, mlp, sgd, step


def halve(parameter):
    parameter.grad.mul_(0.5)


@case
def norm_that_must_be_finite(training):
    model = mlp()

    def clip(model, _):
        nn.utils.clip_grad_norm_(model.parameters(), 0.1, norm_type=float("inf"), error_if_nonfinite=True)

    return training.loop(model, sgd(model), before_step=clip)


@case
def gradients_set_to_none_by_hand(training):
    """Of one layer, after backward(): that layer stays."""
    model = mlp()

    def drop(model, _):
        for parameter in model[2].parameters():
            parameter.grad = None

    return training.loop(model, sgd(model, weight_decay=0.1), before_step=drop)


@case
def gradients_by_autograd_grad(training):
    model = mlp()
    optimizer = training.wrap(sgd(model), model)
    for x, y in training.batches():
        gradients = torch.autograd.grad(F.mse_loss(model(x), y), list(model.parameters()))
        for parameter, gradient in zip(model.parameters(), gradients):
            parameter.grad = gradient
        optimizer.step()
    return model


@case
def gradients_of_two_tasks(training):
    """Gradient surgery."""
    model = mlp()
    optimizer = training.wrap(torch.optim.Adam(model.parameters(), 0.01), model)
    parameters = list(model.parameters())
    for x, y in training.batches():
        output = model(x)
        first = torch.autograd.grad(F.mse_loss(output, y), parameters, retain_graph=True)
        second = torch.autograd.grad(output.pow(2).mean(), parameters)
        first = [training.mean(g) for g in first]
        second = [training.mean(g) for g in second]
        dot = sum(torch.sum(a * b) for a, b in zip(first, second))
        for parameter, a, b in zip(parameters, first, second):
            parameter.grad = a + b * torch.sign(dot)
        optimizer.step()
    return model


@case
def gradients_added_by_hand(training):
    model = mlp()

    def noise(model, _):
        generator = torch.Generator().manual_seed(9)
        for parameter in model.parameters():
            parameter.grad += 0.01 * torch.randn(parameter.shape, generator=generator)

    return training.loop(model, sgd(model), before_step=noise)


@case
def gradients_there_before_wrapping(training):
    model = mlp()
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 0.25)
    optimizer = training.wrap(sgd(model), model)
    for number, (x, y) in enumerate(training.batches()):
        if number:
            optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()
    return model


@case
def wrapped_after_some_steps(training):
    model = mlp()
    plain = torch.optim.Adam(model.parameters(), 0.01)
    batches = list(training.batches(whole=True))
    for whole, _, _ in batches[:2]:
        plain.zero_grad()
        model(whole).pow(2).mean().backward()
        plain.step()
    optimizer = training.wrap(plain, model)
    for _, x, y in batches[2:]:
        step(model, optimizer, x, y)
    return model


@case
def unwrapped_in_the_end(training):
    """A new plain optimizer goes on alone, on whole batches."""
    model = mlp()
    optimizer = training.wrap(sgd(model), model)
    for number, (whole, x, y) in enumerate(training.batches(whole=True)):
        if number == 3:
            optimizer = sgd(model)
        if number < 3:
            step(model, optimizer, x, y)
        else:
            optimizer.zero_grad()
            model(whole).pow(2).mean().backward()
            optimizer.step()
    return model


@case
def two_steps_of_one_gradient(training):
    model = mlp()
    return training.loop(model, sgd(model), before_step=lambda _, optimizer: optimizer.step())


def with_sums(training, model, change=lambda parameter: None):
    """Two steps of one gradient, in which ranks add up what each has scaled."""
    options = {"op": gradbus.Sum} if training.distributed else {}
    scale = gradbus.size() if training.distributed else 1
    optimizer = training.wrap(sgd(model), model, **options)
    for number, (x, y) in enumerate(training.batches()):
        if number % 2:
            optimizer.zero_grad()
        else:
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter.grad.data.zero_()
        (F.mse_loss(model(x), y) / scale).backward()
        for parameter in model.parameters():
            change(parameter)
        optimizer.step()
        optimizer.step()
    return model


@case
def two_steps_of_one_sum(training):
    return with_sums(training, mlp())


@case
def two_steps_of_one_sum_that_was_changed(training):
    return with_sums(training, mlp(), halve)


@case
def a_gradient_on_top_of_a_sum(training):
    """It is refused."""
    model = mlp()
    if training.distributed:
        optimizer = training.wrap(sgd(model), model, op=gradbus.Sum)
        for x, y in training.batches(1):
            step(model, optimizer, x, y)
            with pytest.raises(gradbus.BusyError, match="on top of the sum"):
                F.mse_loss(model(x), y).backward()
        optimizer.zero_grad()
    return nn.Linear(1, 1)  # nothing is compared


@case
def wrapped_again_with_zeros_for_none(training):
    """A parameter that nobody uses keeps no gradient, so momentum and decay do not move it."""
    model = mlp()
    model.unused = nn.Linear(2, 2)
    model.forward = lambda x: nn.Sequential.forward(nn.Sequential(*list(model)[:5]), x)
    for _ in range(2):
        optimizer = training.wrap(sgd(model, weight_decay=0.1), model)
        for x, y in training.batches(3):
            optimizer.zero_grad(set_to_none=False)
            F.mse_loss(model(x), y).backward()
            optimizer.step()
        optimizer.zero_grad()
    return model


class Backwards(nn.Module):
    """Its parameters are not in the order of their use, so buckets are made anew after the first step."""

    def __init__(self):
        super().__init__()
        self.last, self.wide, self.first = nn.Linear(256, 3), nn.Linear(64, 256), nn.Linear(6, 64)

    def forward(self, x):
        return self.last(torch.tanh(self.wide(torch.tanh(self.first(x)))))


@case
def two_steps_of_one_compressed_gradient(training):
    """The codec keeps all elements."""
    model = Backwards()
    again = {"before_step": lambda _, optimizer: optimizer.step(), "compression": "topk:ratio=1"}
    return training.loop(model, torch.optim.SGD(model.parameters(), 0.05, momentum=0.5), **again)


@case
def step_before_any_backward(training):
    """Some programs do so to quiet the warning of schedulers."""
    model = mlp()
    optimizer = training.wrap(sgd(model), model)
    optimizer.step()
    optimizer.zero_grad()
    optimizer.step()
    for x, y in training.batches():
        step(model, optimizer, x, y)
    return model


@case
def loss_that_is_not_finite_is_left_out(training):
    model = mlp()
    optimizer = training.wrap(sgd(model), model)
    for number, (x, y) in enumerate(training.batches()):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        if number == 2:
            loss = loss * float("nan")
        if not torch.isfinite(training.mean(loss)):
            continue
        loss.backward()
        optimizer.step()
    return model


@case
def gradients_thrown_away(training):
    model = mlp()
    optimizer = training.wrap(sgd(model), model)
    for number, (x, y) in enumerate(training.batches()):
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        if number % 2:
            optimizer.zero_grad()
            F.mse_loss(model(x), y * 2).backward()
        optimizer.step()
    return model


@case
def hook_that_steps_in_backward(training):
    """A hook of the user's sees the gradient of this rank, as in DDP; here it only scales it."""
    model = mlp()
    optimizer = training.wrap(sgd(model), model)
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda p: None)
        parameter.register_hook(lambda g: g.clamp(-10, 10))
    for x, y in training.batches():
        step(model, optimizer, x, y)
    return model


@case
def hooks_before_wrapping_change_gradients(training):
    model = mlp()
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(halve)
    return training.loop(model, sgd(model))


@case
def hooks_after_wrapping_change_gradients(training):
    model = mlp()
    optimizer = training.wrap(sgd(model), model)
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(halve)
    for x, y in training.batches():
        step(model, optimizer, x, y)
    return model


@case
def hooks_after_wrapping_set_other_gradients(training):
    """Of every second parameter, so the last gradient of a bucket may come without a later hook."""
    model = mlp()
    optimizer = training.wrap(sgd(model), model)

    def set_half(parameter):
        parameter.grad = parameter.grad * 0.5

    for parameter in list(model.parameters())[1::2]:
        parameter.register_post_accumulate_grad_hook(set_half)
    for x, y in training.batches():
        step(model, optimizer, x, y)
    return model


@case
def hooks_after_wrapping_on_channels_last(training):
    """Gradients in another order are copied to the bucket, after all hooks."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 4, 3), nn.Flatten(), nn.Linear(4 * 36, 3))
    model = model.to(memory_format=torch.channels_last)
    optimizer = training.wrap(sgd(model), model)
    for parameter in list(model.parameters())[:3]:
        parameter.register_post_accumulate_grad_hook(halve)
    for x, y in training.batches(shape=(8, 3 * 8 * 8)):
        step(model, optimizer, x.view(-1, 3, 8, 8), y)
    return model


@case
def a_sum_that_no_step_used(training):
    """A program skips a step, and the model forgets its gradients, not the optimizer."""
    model = mlp()
    options = {"op": gradbus.Sum} if training.distributed else {}
    optimizer = training.wrap(sgd(model), model, **options)
    ranks = gradbus.size() if training.distributed else 1
    for number, (x, y) in enumerate(training.batches()):
        model.zero_grad(set_to_none=True)
        (F.mse_loss(model(x), y) / ranks).backward()
        if number % 3 != 1:
            optimizer.step()
    return model


@case
def steps_on_a_sum_in_other_buckets(training):
    """Layers run in another order than they were made, so buckets are made anew after the first of two steps."""
    model = nn.Sequential(nn.Linear(16, 3), nn.Linear(6, 16))
    options = {"op": gradbus.Sum, "schedule": "ddp", "bucket_bytes": 64} if training.distributed else {}
    optimizer = training.wrap(torch.optim.Adagrad(model.parameters(), 0.1), model, **options)
    ranks = gradbus.size() if training.distributed else 1
    for x, y in training.batches():
        optimizer.zero_grad()
        (F.mse_loss(model[0](model[1](x)), y) / ranks).backward()
        optimizer.step()
        optimizer.step()
    return model


@case
def flush_leaves_unused_parameters_alone(training):
    """Zeros in place of None would move them by momentum and weight decay."""
    model = mlp()
    model.unused = nn.Linear(3, 3)
    model.unused.bias.requires_grad_(False)
    optimizer = training.wrap(sgd(model, weight_decay=0.1), model)
    used = model[:5]
    for number, (x, y) in enumerate(training.batches()):
        optimizer.zero_grad(set_to_none=number == 3)
        F.mse_loss(used(x), y).backward()
        optimizer.step()
        if training.distributed:
            optimizer.flush()
    return model


@case
def anomaly_detection(training):
    model = mlp()
    with torch.autograd.detect_anomaly(check_nan=True):
        return training.loop(model, sgd(model))


@case
def saved_tensors_elsewhere(training):
    model = mlp()
    with torch.autograd.graph.save_on_cpu():
        return training.loop(model, sgd(model))


@case
def one_thread_of_autograd(training):
    model = mlp()
    with torch.autograd.set_multithreading_enabled(False):
        return training.loop(model, sgd(model))


@case
def deterministic_algorithms(training):
    model = mlp()
    torch.use_deterministic_algorithms(True)
    try:
        return training.loop(model, sgd(model))
    finally:
        torch.use_deterministic_algorithms(False)


@case
def other_default_dtype(training):
    torch.set_default_dtype(torch.float64)
    try:
        model = mlp()
        return training.loop(model, sgd(model))
    finally:
        torch.set_default_dtype(torch.float32)


@case
def half_as_default_dtype(training):
    model = mlp()
    torch.set_default_dtype(torch.bfloat16)
    try:
        optimizer = training.wrap(sgd(model), model, check_every=2)
        generator = torch.Generator().manual_seed(1)
        for _ in range(4):
            x, y = torch.randn(8, 6, generator=generator, dtype=torch.float32), torch.ones(8, 3, dtype=torch.float32)
            x, y = training.part(x, y)
            step(model, optimizer, x, y)
        return model
    finally:
        torch.set_default_dtype(torch.float32)


@case
def other_default_device(training):
    """As torch.set_default_device("cuda"): what is not said to be on the CPU is elsewhere."""
    model = mlp()
    batches = list(training.batches())
    with torch.device("meta"):
        optimizer = (
            training.wrap(sgd(model), model, check_every=2, broadcast=True) if training.distributed else sgd(model)
        )
        for x, y in batches:
            step(model, optimizer, x, y)
            training.mean(torch.zeros(1, device="cpu"))
        return model


@case
def warnings_are_errors(training):
    model = mlp()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return training.loop(model, sgd(model))


@case
def count_of_operations(training):
    model = mlp()
    with FlopCounterMode(display=False):
        return training.loop(model, sgd(model))


@case
def profiled(training):
    model = mlp()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        return training.loop(model, sgd(model))

"""Cases: what scripts do with optimizers and gradients besides backward() and step()."""

import copy

import gradbus.torch as gradbus
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.optimizer import register_optimizer_step_post_hook
from training_cases import case, mlp, sgd, step, with_log


@case
def gradients_written_to_data(training):
    """As for master weights in float32, and in bilevel optimization: backward() is of another model."""
    model, other = mlp(), mlp()
    optimizer = training.wrap(sgd(model), model)
    for x, y in training.batches():
        optimizer.zero_grad()
        other.load_state_dict(model.state_dict())
        gradients = torch.autograd.grad(F.mse_loss(other(x), y), list(other.parameters()))
        for parameter, gradient in zip(model.parameters(), gradients):
            if parameter.grad is None:
                parameter.grad = gradient
            else:
                parameter.grad.data.copy_(gradient)
        optimizer.step()
    return model


class MeanOfPasses(torch.optim.SGD):
    """Counts what zero_grad() ends."""

    passes = 0

    def zero_grad(self):
        self.passes = 0
        super().zero_grad()

    def step(self, closure=None):
        self.passes += 1
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad.div_(self.passes)
        return super().step(closure)


@case
def zero_grad_of_an_own_class(training):
    model = mlp()
    return training.loop(model, MeanOfPasses(model.parameters(), 0.1, momentum=0.9))


@case
def sharded_zero_grad_of_an_own_class(training):
    model = mlp()
    options = {"shard": True} if training.distributed else {}
    return training.loop(model, MeanOfPasses(model.parameters(), 0.1, momentum=0.9), **options)


def search(training, number, **options):
    """``number``: what the closure returns, of a loss of this rank."""
    model = mlp()
    optimizer = torch.optim.LBFGS(model.parameters(), 0.5, max_iter=6, line_search_fn="strong_wolfe")
    optimizer = training.wrap(optimizer, model, **(options if training.distributed else {}))
    for x, y in training.batches(3):

        def closure(x=x, y=y):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y, reduction="sum" if options else "mean")
            loss.backward()
            return number(loss)

        optimizer.step(closure)
    return model


@case
def lbfgs_with_a_loss_that_is_a_number(training):
    return search(training, lambda loss: loss.item())


@case
def lbfgs_on_the_sum_of_losses(training):
    return search(training, lambda loss: loss, op=gradbus.Sum)


def sharded_with_hooks(training, make):
    model = mlp()
    average = copy.deepcopy(model)
    options = {"shard": True} if training.distributed else {}
    optimizer = training.wrap(make(model), model, **options)

    def before(*_):
        for parameter in model.parameters():
            parameter.grad.mul_(0.5)

    def after(*_):
        with torch.no_grad():
            for mean, parameter in zip(average.parameters(), model.parameters()):
                parameter.clamp_(-0.3, 0.3)
                mean.lerp_(parameter, 0.3)

    optimizer.register_step_pre_hook(before)
    optimizer.register_step_post_hook(after)
    for x, y in training.batches():
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()
    return nn.ModuleList([model, average])


@case
def step_hooks_of_a_sharded_optimizer(training):
    return sharded_with_hooks(training, sgd)


class Whole(torch.optim.SGD):
    """A class that is not torch's: its parameters are not cut."""


@case
def step_hooks_of_a_sharded_optimizer_of_whole_parameters(training):
    return sharded_with_hooks(training, lambda model: Whole(model.parameters(), 0.1, momentum=0.9))


@case
def a_step_hook_of_all_optimizers(training):
    model = mlp()
    options = {"shard": True} if training.distributed else {}
    optimizer = training.wrap(sgd(model), model, **options)

    def after(stepped, *_):
        if stepped is optimizer:
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.mul_(0.9)

    handle = register_optimizer_step_post_hook(after)
    for x, y in training.batches():
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()
    handle.remove()
    return model


@case
def fused_steps_on_broadcast_state(training):
    """Rank 0 alone has loaded a checkpoint of a model whose weights lie in memory as channels_last."""
    model = nn.Sequential(nn.Conv2d(2, 8, 3), nn.Tanh(), nn.Flatten(), nn.Linear(8 * 8, 3))
    model = model.to(memory_format=torch.channels_last)
    plain = torch.optim.Adam(model.parameters(), 0.01, fused=True)
    if not training.distributed or gradbus.rank() == 0:
        other = copy.deepcopy(model)
        saved = torch.optim.Adam(other.parameters(), 0.01, fused=True)
        for number in range(2):
            for parameter in other.parameters():
                values = torch.arange(parameter.numel(), dtype=torch.float32).view(parameter.shape)
                parameter.grad = torch.empty_like(parameter).copy_(torch.sin(values + number))
            saved.step()
        plain.load_state_dict(copy.deepcopy(saved.state_dict()))
    if training.distributed:
        gradbus.broadcast_optimizer_state(plain)
    return training.loop(model, plain, shape=(8, 2, 4, 6))


def flush_now(training, optimizer):
    if training.distributed:
        assert optimizer.flush() == 0


@case
def flush_without_zero_grad(training):
    """Gradients add up for ever."""
    model = mlp()
    optimizer = training.wrap(sgd(model), model)
    for x, y in training.batches():
        F.mse_loss(model(x), y).backward()
        optimizer.step()
        flush_now(training, optimizer)
    return model


def unseen_sums(parameter):
    """Readers that nobody sees while a step is put off: docs/concepts/schedules.md."""
    other = torch.empty(0)
    other.data = parameter
    capsule = torch.utils.dlpack.to_dlpack(parameter)
    readers = torch.tensor(parameter), torch.Tensor._make_subclass(torch.Tensor, parameter), other
    sums = [float(reader.detach().sum()) for reader in (*readers, torch.utils.dlpack.from_dlpack(capsule))]
    return [*sums, float(scripted_sum(parameter))]


@torch.jit.script
def scripted_sum(x: torch.Tensor) -> torch.Tensor:
    return x.sum()


@case
def flush_before_unseen_readers(training):
    model, log = mlp(), []
    optimizer = training.wrap(sgd(model), model)
    for x, y in training.batches():
        step(model, optimizer, x, y)
        flush_now(training, optimizer)
        log += unseen_sums(model[2].weight)
    return with_log(model, log)


@case
def flush_between_passes_of_a_step(training):
    """For example for a validation in the middle of an accumulation."""
    model = mlp()
    optimizer = training.wrap(sgd(model), model, backward_passes_per_step=2)
    for x, y in training.batches():
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        flush_now(training, optimizer)
        F.mse_loss(model(x), y).mul(0.5).backward()
        optimizer.step()
    return model

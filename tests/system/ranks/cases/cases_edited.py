"""Groups and gradients that a script edits by hand, and optimizers of its own."""

import copy

import gradbus.torch as gradbus
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from training_cases import CASES, case, mlp, sgd, step


def three_groups(model, kind=torch.optim.SGD, **options):
    layers = (model[0], 0.1), (model[2], 0.01), (model[4], 0.03)
    return kind([{"params": layer.parameters(), "lr": lr} for layer, lr in layers], **options)


def edited(training, make, edit):
    """Edited after three steps of six. The state survives that."""
    model = mlp()
    optimizer = training.wrap(make(model), model)
    for number, (x, y) in enumerate(training.batches()):
        step(model, optimizer, x, y)
        if number == 2:
            edit(optimizer, model)
        if number == 3:
            saved = copy.deepcopy(optimizer.state_dict()), copy.deepcopy(model.state_dict())
    optimizer.load_state_dict(saved[0])
    model.load_state_dict(saved[1])
    for x, y in training.batches(2):
        step(model, optimizer, x, y)
    return model


def remove_first(optimizer, _):
    for parameter in optimizer.param_groups[0]["params"]:
        optimizer.state.pop(parameter, None)
    del optimizer.param_groups[0]


def reverse(optimizer, _):
    optimizer.param_groups.reverse()


def take_out(optimizer, _):
    for parameter in optimizer.param_groups[1]["params"][:1]:
        optimizer.state.pop(parameter, None)
    optimizer.param_groups[1]["params"] = optimizer.param_groups[1]["params"][1:]


def move(optimizer, _):
    optimizer.param_groups[2]["params"].append(optimizer.param_groups[1]["params"].pop())


def clear(optimizer, model):
    optimizer.param_groups.clear()
    optimizer.state.clear()
    optimizer.add_param_group({"params": list(model.parameters()), "lr": 0.05})


def clear_and_split(optimizer, model):
    optimizer.param_groups.clear()
    optimizer.state.clear()
    for layer, lr in ((model[4], 0.02), (model[0], 0.05), (model[2], 0.01)):
        optimizer.add_param_group({"params": list(layer.parameters()), "lr": lr})


for _edit in (remove_first, reverse, take_out, move, clear, clear_and_split):
    for _kind in (torch.optim.SGD, torch.optim.Adam):

        def _run(training, edit=_edit, kind=_kind):
            options = {"momentum": 0.9} if kind is torch.optim.SGD else {}
            return edited(training, lambda model: three_groups(model, kind, **options), edit)

        CASES[f"edited_{_edit.__name__}_{_kind.__name__}"] = (_run, 1e-5)


@case
def groups_added_again_are_refused(training):
    """Where the residual is scaled by the learning rate of the earlier group."""
    model = mlp()
    optimizer = training.wrap(sgd(model), model, compression="onebit", rescale_residual=True)
    if training.distributed:
        groups = list(optimizer.param_groups)
        optimizer.param_groups.clear()
        with pytest.raises(gradbus.InvalidError, match=r"add_param_group: parameter '0.weight' .* \| next: "):
            optimizer.add_param_group({"params": list(model.parameters())})
        assert not optimizer.param_groups
        optimizer.param_groups += groups
    for x, y in training.batches(2):
        step(model, optimizer, x, y)
    return nn.Linear(1, 1)  # nothing is compared


class Own(torch.optim.Optimizer):
    """A user's: it steps on one parameter at a time."""

    def __init__(self, parameters, lr=0.1):
        super().__init__(parameters, {"lr": lr})
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        self.scales = {id(parameter): 1.0 + number for number, parameter in enumerate(parameters)}

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.step_on(parameter, group["lr"])


class Assigns(Own):
    """It gives a parameter other storage."""

    def step_on(self, parameter, lr):
        parameter.data = parameter.data - lr * parameter.grad.data


class AsksWhetherTrainable(Own):
    def step_on(self, parameter, lr):
        if parameter.requires_grad and isinstance(parameter, nn.Parameter):
            parameter.add_(parameter.grad, alpha=-lr)


class KnowsByIdentity(Own):
    def step_on(self, parameter, lr):
        parameter.add_(parameter.grad, alpha=-0.3 * lr * self.scales[id(parameter)])


class KeepsMomenta(Own):
    def step_on(self, parameter, lr):
        momentum = self.state[parameter].setdefault("momentum", torch.zeros_like(parameter))
        momentum.mul_(0.9).add_(parameter.grad)
        parameter.add_(momentum, alpha=-lr)


class WalksThroughAll(Own):
    """Through a list of its own."""

    def __init__(self, parameters, lr=0.1):
        self.all = list(parameters)
        super().__init__(self.all, lr)

    @torch.no_grad()
    def step(self, closure=None):
        for parameter in self.all:
            if parameter.grad is not None:
                parameter.add_(parameter.grad, alpha=-0.1)


for _kind in (Assigns, AsksWhetherTrainable, KnowsByIdentity, KeepsMomenta, WalksThroughAll):

    def _own(training, kind=_kind):
        return edited(training, lambda model: kind(model.parameters()), lambda *_: None)

    CASES[f"own_{_kind.__name__}"] = (_own, 1e-5)


@case(tolerance=1e-5)
def edited_gradients_exchanged(training):
    model = nn.ModuleList([nn.Linear(6, 3), nn.Linear(6, 3)])
    optimizer = training.wrap(sgd(model), model)
    for number, (x, y) in enumerate(training.batches()):
        optimizer.zero_grad()
        F.mse_loss(model[0](x) + model[1](x).tanh(), y).backward()
        a, b = model[0].weight, model[1].weight
        a.grad, b.grad = b.grad, a.grad
        if number % 2:
            model[0].bias.grad = model[1].bias.grad
            nn.utils.clip_grad_norm_(model.parameters(), 0.3)
        optimizer.step()
    return model


@case(tolerance=1e-5)
def edited_gradients_of_nobody(training):
    """The second layer is not used, and gets the gradient of the first."""
    model = nn.ModuleList([nn.Linear(6, 3), nn.Linear(6, 3)])
    optimizer = training.wrap(sgd(model), model)
    for x, y in training.batches():
        optimizer.zero_grad()
        F.mse_loss(model[0](x), y).backward()
        model[1].weight.grad = model[0].weight.grad
        optimizer.step()
    return model


def _never_zeroed(training, zero, passes=1, clip=None):
    model = mlp()
    options = {"backward_passes_per_step": passes} if training.distributed and passes > 1 else {}
    optimizer = training.wrap(sgd(model, momentum=0.2), model, **options)
    for number, (x, y) in enumerate(training.batches(8)):
        if number % 2 == 0:
            for parameter in list(model.parameters())[2:]:
                if zero and parameter.grad is not None:
                    zero(parameter)
        for _ in range(passes):
            F.mse_loss(model(x) if number % 3 else model[:1](x)[:, :3], y).backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
    return model


def to_zeros(parameter):
    parameter.grad.zero_()


def to_none(parameter):
    parameter.grad = None


def to_half(parameter):
    parameter.grad.mul_(0.5)


for _name, _how in {
    "never": {"zero": None}, "to_zeros": {"zero": to_zeros}, "to_none": {"zero": to_none}, "to_half": {"zero": to_half},
    "never_in_passes": {"zero": None, "passes": 2}, "never_and_clipped": {"zero": None, "clip": 0.2},
}.items():  # fmt: skip
    CASES[f"edited_zero_{_name}"] = (lambda training, how=_how: _never_zeroed(training, **how), 1e-5)


@case(tolerance=1e-5)
def edited_model_after_a_step(training):
    """It is converted and moved while it has gradients."""
    model = mlp()
    optimizer = training.wrap(sgd(model), model)
    for x, y in training.batches():
        step(model, optimizer, x, y)
        model.to(memory_format=torch.contiguous_format)
        copied = copy.deepcopy(model).half()
        assert copied[0].weight.dtype == torch.float16
        model.share_memory()
    model.double()
    return model


class Shared(nn.Module):
    """A layer that reentrant checkpoints use twice, and whose gradient is the last one of its pass."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        x = x.clone().requires_grad_()
        for _ in range(2):
            x = checkpoint(lambda z: torch.tanh(self.first(z)), x, use_reentrant=True)
        return self.last(x)


@case(tolerance=1e-5)
def checkpoint_of_a_shared_first_layer(training):
    model = Shared()
    return training.loop(model, sgd(model))


@case(tolerance=1e-5)
def checkpoint_of_a_shared_first_layer_in_passes(training):
    model = Shared()
    optimizer = training.wrap(sgd(model), model, **({"backward_passes_per_step": 2} if training.distributed else {}))
    batches = list(training.batches(8))
    for number, (x, y) in enumerate(batches):
        (F.mse_loss(model(x), y) / 2).backward()
        if number % 2:
            optimizer.step()
            optimizer.zero_grad()
    return model

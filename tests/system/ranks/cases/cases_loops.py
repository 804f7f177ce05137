"""Cases: what programs do between backward() and the next backward()."""

import copy
import io
import threading

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim import lr_scheduler
from training_cases import case, mlp, with_log


def sgd(model, **options):
    return torch.optim.SGD(model.parameters(), 0.1, **options)


def each_gradient(change):
    def before_step(model, _):
        for parameter in model.parameters():
            change(parameter)

    return before_step


def replace(parameter):
    parameter.grad = parameter.grad * 2


# Between backward() and step().
BEFORE_STEP = {
    "clip_norm": lambda model, _: nn.utils.clip_grad_norm_(model.parameters(), 0.1),
    "clip_value": lambda model, _: nn.utils.clip_grad_value_(model.parameters(), 0.01),
    "foreach": lambda model, _: torch._foreach_mul_([p.grad for p in model.parameters()], 0.5),
    "replace": each_gradient(replace),
    "clamp_data": each_gradient(lambda p: p.grad.data.clamp_(-0.01, 0.01)),
    "detach": each_gradient(lambda p: p.grad.detach_()),
}


def decay(model, _):
    with torch.no_grad():
        torch._foreach_mul_(list(model.parameters()), 0.99)


def through_a_vector(model, _):
    vector = nn.utils.parameters_to_vector(model.parameters())
    nn.utils.vector_to_parameters(vector * 0.99, model.parameters())


def fill(model, _):
    nn.init.constant_(model[2].bias, 0.01)
    model[2].weight[0].data.fill_(0.5)
    model[0].weight.data[1:3] = 0


def load_halves(model, _):
    model.load_state_dict({key: value * 0.9 for key, value in model.state_dict().items()})


def other_data(model, _):
    for parameter in model.parameters():
        parameter.data = parameter.data * 0.9


def lower_rates(_, optimizer):
    for group in optimizer.param_groups:
        group["lr"] *= 0.8


def save_and_load(model, optimizer):
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])


AFTER_STEP = {
    "decay": decay,
    "vector": through_a_vector,
    "fill": fill,
    "load": load_halves,
    "data": other_data,
    "rates": lower_rates,
    "save_and_load": save_and_load,
}
for _name, _change in BEFORE_STEP.items():

    @case(name=f"gradients_{_name}")
    def _before_step(training, change=_change):
        model = mlp()
        return training.loop(model, torch.optim.Adam(model.parameters(), 0.01), before_step=change)


for _name, _change in AFTER_STEP.items():

    @case(name=f"after_step_{_name}")
    def _after_step(training, change=_change):
        model = mlp()
        return training.loop(model, sgd(model, momentum=0.9), after_step=change)


SCHEDULERS = {
    "one_cycle": lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=8),
    "restarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "cyclic": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, step_size_up=2),
    "sequence": lambda o: lr_scheduler.SequentialLR(o, [lr_scheduler.LinearLR(o), lr_scheduler.StepLR(o, 2)], [3]),
}
for _name, _make in SCHEDULERS.items():

    @case(name=f"scheduler_{_name}")
    def _scheduler(training, make=_make):
        model = mlp()
        optimizer = sgd(model, momentum=0.9)
        scheduler = make(optimizer)
        return training.loop(model, optimizer, after_step=lambda *_: scheduler.step())


@case
def average_of_parameters(training):
    model = mlp()
    averaged, copied = torch.optim.swa_utils.AveragedModel(model), copy.deepcopy(model)

    def average(model, _):
        averaged.update_parameters(model)
        for mean, parameter in zip(copied.parameters(), model.parameters()):
            mean.data.mul_(0.9).add_(parameter.data, alpha=0.1)

    training.loop(model, sgd(model), after_step=average)
    return nn.ModuleList([model, averaged.module, copied])


@case
def copies_of_each_step(training):
    model, copies = mlp(), []
    training.loop(model, sgd(model), after_step=lambda model, _: copies.append(copy.deepcopy(model)))
    return nn.ModuleList([model, *copies])


@case
def sharpness_aware(training):
    model = mlp()
    optimizer = training.wrap(sgd(model), model)
    for x, y in training.batches():
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        with torch.no_grad():
            norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
            moves = [p.grad * (0.05 / norm) for p in model.parameters()]
            torch._foreach_add_(list(model.parameters()), moves)
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        with torch.no_grad():
            torch._foreach_sub_(list(model.parameters()), moves)
        optimizer.step()
    return model


@case
def clipped_critic(training):
    generator = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    critic = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
    first = training.wrap(torch.optim.Adam(generator.parameters(), 0.01), generator)
    named = [(f"critic.{name}", parameter) for name, parameter in critic.named_parameters()]
    second = training.wrap(torch.optim.RMSprop(critic.parameters(), 0.01), named)
    for x, y in training.batches():
        second.zero_grad()
        (critic(generator(x).detach()).mean() - critic(y).mean()).backward()
        second.step()
        for parameter in critic.parameters():
            parameter.data.clamp_(-0.1, 0.1)
        first.zero_grad()
        (-critic(generator(x)).mean()).backward()
        first.step()
    return nn.ModuleList([generator, critic])


@case
def gradient_penalty(training):
    model = mlp()
    optimizer = training.wrap(torch.optim.Adam(model.parameters(), 0.01), model)
    for x, y in training.batches():
        x = x.clone().requires_grad_()
        optimizer.zero_grad()
        output = model(x)
        (gradient,) = torch.autograd.grad(output.sum(), x, create_graph=True)
        (F.mse_loss(output, y) + (gradient.norm(dim=1) - 1).pow(2).mean()).backward()
        optimizer.step()
    return model


@case
def two_losses_of_one_graph(training):
    model = mlp()
    optimizer = training.wrap(sgd(model), model)
    for x, y in training.batches():
        optimizer.zero_grad()
        output = model(x)
        F.mse_loss(output, y).backward(retain_graph=True)
        output.pow(2).mean().backward()
        optimizer.step()
    return model


@case
def passes_that_add_up(training):
    model = mlp()
    optimizer = training.wrap(sgd(model), model, backward_passes_per_step=2)
    for number, (x, y) in enumerate(training.batches(8)):
        (F.mse_loss(model(x), y) / 2).backward()
        if number % 2:
            optimizer.step()
            optimizer.zero_grad()
    return model


@case
def passes_that_were_not_announced(training):
    model = mlp()
    optimizer = training.wrap(sgd(model), model)
    for number, (x, y) in enumerate(training.batches(8)):
        (F.mse_loss(model(x), y) / 2).backward()
        if number % 2:
            optimizer.step()
            model.zero_grad()
    return model


@case
def steps_left_out(training):
    model = mlp()
    optimizer = training.wrap(sgd(model, momentum=0.9), model)
    for number, (x, y) in enumerate(training.batches(8)):
        for parameter in model.parameters():
            parameter.grad = None
        F.mse_loss(model(x), y).backward()
        if number % 3 != 1:
            optimizer.step()
    return model


@case
def frozen_for_a_while(training):
    model = mlp()
    optimizer = training.wrap(sgd(model, momentum=0.9, weight_decay=0.01), model)
    for number, (x, y) in enumerate(training.batches(9)):
        model[0].requires_grad_(number // 3 != 1)
        optimizer.zero_grad(set_to_none=number % 2 == 0)
        F.mse_loss(model(x), y).backward()
        optimizer.step()
    return model


@case
def a_group_more(training):
    model = mlp()
    named = [(name, p) for name, p in model.named_parameters() if name.startswith("4")]
    optimizer = training.wrap(torch.optim.SGD(model[4].parameters(), 0.1), named)
    for number, (x, y) in enumerate(training.batches()):
        if number == 3:
            optimizer.add_param_group({"params": list(model[0].parameters()), "lr": 0.05})
        model.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()
    return model


@case
def another_optimizer(training):
    model = mlp()
    optimizer = training.wrap(sgd(model), model)
    for number, (x, y) in enumerate(training.batches(8)):
        if number == 4:
            optimizer = training.wrap(torch.optim.Adam(model.parameters(), 0.01), model)
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()
    return model


@case
def scaled_loss_that_overflows_on_one_rank(training):
    model = mlp()
    optimizer = training.wrap(sgd(model), model)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    for number, (whole, x, y) in enumerate(training.batches(whole=True)):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        if number == 3 and torch.equal(x[-1], whole[-1]):  # the last rank
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.3)
        scaler.step(optimizer)
        scaler.update()
    return model


@case
def functional_calls(training):
    model = mlp()
    optimizer = training.wrap(sgd(model), model)
    for x, y in training.batches():
        optimizer.zero_grad()
        F.mse_loss(torch.func.functional_call(model, dict(model.named_parameters()), x), y).backward()
        optimizer.step()
        frozen = {name: p.detach() for name, p in model.named_parameters()}
        torch.func.vmap(lambda row, frozen=frozen: torch.func.functional_call(model, frozen, row))(x)
    return model


@case
def evaluations(training):
    model, log = mlp(), []
    optimizer = training.wrap(torch.optim.Adam(model.parameters(), 0.01), model)

    def evaluate(x):
        with torch.inference_mode():
            log.append(float(model(x).sum()))

    for whole, x, y in training.batches(whole=True):
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()
        log.append(sum(float(p.grad.norm()) for p in model.parameters()))
        log.append(sum(float(s["exp_avg"].sum()) for s in optimizer.state.values()))
        evaluate(whole)
        thread = threading.Thread(target=evaluate, args=(whole,))
        thread.start()
        thread.join()
    return with_log(model, log)

"""Cases: schedulers, optimizers of all kinds and what is around them."""

import copy
import io
import pickle

import gradbus.torch as gradbus
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim import lr_scheduler
from training_cases import case, mlp, sgd, step, with_log

SCHEDULERS = {
    "lambda": lambda o: lr_scheduler.LambdaLR(o, lambda n: 0.9**n),
    "multiplicative": lambda o: lr_scheduler.MultiplicativeLR(o, lambda n: 0.9),
    "exponential": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "polynomial": lambda o: lr_scheduler.PolynomialLR(o, 8),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, 5),
    "chained": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(o), lr_scheduler.ExponentialLR(o, 0.9)]
    ),
    "swa": lambda o: torch.optim.swa_utils.SWALR(o, 0.05, 3),
}
for _name, _make in SCHEDULERS.items():

    @case(name=f"more_scheduler_{_name}")
    def _scheduler(training, make=_make):
        model = mlp()
        optimizer = training.wrap(sgd(model), model)
        scheduler = make(optimizer)
        for x, y in training.batches():
            step(model, optimizer, x, y)
            scheduler.step()
        return model


@case
def plateau_on_the_mean_loss(training):
    model = mlp()
    optimizer = training.wrap(sgd(model), model)
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    for x, y in training.batches():
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        scheduler.step(training.mean(loss))
    return with_log(model, [group["lr"] for group in optimizer.param_groups])


@case
def optimizer_of_named_parameters(training):
    model = mlp()
    optimizer = torch.optim.SGD(model.named_parameters(), 0.1, momentum=0.9)
    if training.distributed:
        optimizer = gradbus.DistributedOptimizer(optimizer)
    for x, y in training.batches():
        step(model, optimizer, x, y)
    return model


@case
def optimizer_hooks(training):
    model, log = mlp(), []
    optimizer = sgd(model)
    optimizer.register_step_pre_hook(lambda o, *_: log.append(float(o.param_groups[0]["params"][0].grad.norm())))
    optimizer = training.wrap(optimizer, model)
    optimizer.register_step_post_hook(lambda o, *_: log.append(float(o.param_groups[0]["params"][0].detach().norm())))
    for x, y in training.batches():
        step(model, optimizer, x, y)
    return with_log(model, log)


class Lookahead:
    def __init__(self, inner, every=2):
        self.inner, self.every, self.count = inner, every, 0
        self.slow = [p.detach().clone() for g in inner.param_groups for p in g["params"]]

    def step(self):
        self.inner.step()
        self.count += 1
        if self.count % self.every == 0:
            fast = [p for g in self.inner.param_groups for p in g["params"]]
            for slow, parameter in zip(self.slow, fast):
                slow.lerp_(parameter.detach(), 0.5)
                parameter.data.copy_(slow)

    def zero_grad(self):
        self.inner.zero_grad()


@case
def lookahead_around(training):
    model = mlp()
    optimizer = Lookahead(training.wrap(sgd(model), model))
    for x, y in training.batches():
        step(model, optimizer, x, y)
    return model


class Sign(torch.optim.Optimizer):
    """A user's own."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    state = self.state[parameter]
                    state["mean"] = 0.9 * state.get("mean", 0) + parameter.grad
                    parameter.sub_(state["mean"].sign() * group["lr"] * parameter.grad.abs())


@case
def optimizer_of_a_user(training):
    model = mlp()
    return training.loop(model, Sign(model.parameters(), 0.1))


@case
def closure_for_adam(training):
    model, log = mlp(), []
    optimizer = training.wrap(torch.optim.Adam(model.parameters(), 0.01), model)
    for x, y in training.batches():

        def closure(x=x, y=y):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            return training.mean(loss)

        log.append(float(optimizer.step(closure)))
    return with_log(model, log)


@case
def lbfgs_with_line_search(training):
    model = mlp()
    optimizer = training.wrap(
        torch.optim.LBFGS(model.parameters(), 0.5, max_iter=5, line_search_fn="strong_wolfe"), model
    )
    for x, y in training.batches(2):

        def closure(x=x, y=y):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            return training.mean(loss)

        optimizer.step(closure)
    return model


@case
def groups_with_options(training):
    model = mlp()
    groups = [
        {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.dim() == 1], "lr": 0.01, "nesterov": True},
        {"params": []},
    ]
    return training.loop(model, torch.optim.SGD(groups, 0.1, momentum=0.9))


@case
def one_scaler_for_two_optimizers(training):
    model = mlp()
    named = dict(model.named_parameters())
    first, second = ([(k, p) for k, p in named.items() if k.startswith("4") == last] for last in (False, True))
    optimizers = [training.wrap(torch.optim.SGD([p for _, p in part], 0.1), part) for part in (first, second)]
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=2)
    for x, y in training.batches():
        for optimizer in optimizers:
            optimizer.zero_grad()
        scaler.scale(F.mse_loss(model(x), y)).backward()
        scaler.unscale_(optimizers[0])
        nn.utils.clip_grad_norm_([p for _, p in first], 0.1)
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update()
    return model


@case
def scaler_and_accumulation(training):
    model = mlp()
    optimizer = training.wrap(sgd(model), model, backward_passes_per_step=2)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    for number, (x, y) in enumerate(training.batches(8)):
        scaler.scale(F.mse_loss(model(x), y) / 2).backward()
        if number % 2:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=False)
    return model


@case
def extragradient(training):
    model = mlp()
    optimizer = training.wrap(torch.optim.SGD(model.parameters(), 0.1), model)
    for x, y in training.batches():
        kept = [p.detach().clone() for p in model.parameters()]
        step(model, optimizer, x, y)
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        for parameter, value in zip(model.parameters(), kept):
            parameter.data = value
        optimizer.step()
    return model


@case
def copies_of_model_and_optimizer_go_on(training):
    model = mlp()
    optimizer = training.wrap(sgd(model), model)
    batches = list(training.batches())
    for x, y in batches[:2]:
        step(model, optimizer, x, y)
    model, state = copy.deepcopy(model), copy.deepcopy(optimizer.state_dict())
    optimizer = training.wrap(sgd(model), model)
    optimizer.load_state_dict(state)
    for x, y in batches[2:]:
        step(model, optimizer, x, y)
    return model


@case
def pickled_in_the_middle(training):
    model = mlp()
    optimizer = training.wrap(sgd(model), model)
    log = []
    for x, y in training.batches():
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        log.append(float(sum(p.sum() for p in pickle.loads(pickle.dumps(model)).parameters())))
        log.append(float(copy.deepcopy([p.grad for p in model.parameters()])[0].sum()))
        file = io.BytesIO()
        torch.save(optimizer.state_dict(), file)
        optimizer.step()
    return with_log(model, log)

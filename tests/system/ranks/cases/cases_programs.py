"""Cases: adapters, threads, exceptions and data loaders."""

import threading

import torch
import torch.nn as nn
import torch.nn.functional as F
from training_cases import case, mlp, sgd, step


@case
def adapters_for_a_frozen_model(training):
    model = mlp().requires_grad_(False)
    down, up = nn.Linear(16, 2, bias=False), nn.Linear(2, 16, bias=False)
    nn.init.zeros_(up.weight)
    adapters = nn.ModuleDict({"down": down, "up": up})
    optimizer = training.wrap(torch.optim.AdamW(adapters.parameters(), 0.01), adapters)
    for x, y in training.batches():
        optimizer.zero_grad()
        hidden = model[:2](x)
        F.mse_loss(model[2:](hidden + up(down(hidden))), y).backward()
        optimizer.step()
    return nn.ModuleList([model, adapters])


@case
def unfrozen_with_a_new_group(training):
    model = mlp()
    model[0].requires_grad_(False)
    optimizer = training.wrap(
        torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.1),
        [(n, p) for n, p in model.named_parameters() if p.requires_grad],
    )
    for number, (x, y) in enumerate(training.batches()):
        if number == 3:
            model[0].requires_grad_(True)
            optimizer.add_param_group({"params": model[0].parameters(), "lr": 0.01})
        step(model, optimizer, x, y)
    return model


@case
def frozen_when_buckets_are_made_anew(training):
    """After the first step: the layers are not in the order of their use."""
    model = nn.ModuleDict({"last": nn.Linear(256, 3), "wide": nn.Linear(64, 256), "first": nn.Linear(6, 64)})
    options = {"schedule": "ddp"} if training.distributed else {}
    optimizer = training.wrap(sgd(model), model, **options)
    for number, (x, y) in enumerate(training.batches()):
        model["wide"].requires_grad_(number >= 3)
        optimizer.zero_grad()
        F.mse_loss(model["last"](model["wide"](model["first"](x).tanh()).tanh()), y).backward()
        optimizer.step()
    return model


@case
def trained_in_a_thread(training):
    model = mlp()
    failed = []

    def work():
        try:
            training.loop(model, sgd(model))
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return model


@case
def two_models_in_two_threads(training):
    models = [mlp(), mlp()]
    optimizers = [
        training.wrap(sgd(m), [(f"{n}.{k}", p) for k, p in m.named_parameters()]) for n, m in enumerate(models)
    ]
    batches = list(training.batches())
    failed = []

    def work(model, optimizer):
        try:
            for x, y in batches:
                step(model, optimizer, x, y)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(models, optimizers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return nn.ModuleList(models)


@case
def an_exception_of_a_hook(training):
    model = mlp()
    optimizer = training.wrap(sgd(model), model)
    for number, (x, y) in enumerate(training.batches()):
        optimizer.zero_grad()
        if number == 2:
            handle = model[0].weight.register_hook(lambda g: 1 / 0)
            try:
                F.mse_loss(model(x), y).backward()
            except ZeroDivisionError:
                handle.remove()
                continue
        F.mse_loss(model(x), y).backward()
        optimizer.step()
    return model


@case
def an_exception_between_backward_and_step(training):
    model = mlp()
    optimizer = training.wrap(sgd(model), model)
    for number, (x, y) in enumerate(training.batches()):
        try:
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            if number == 2:
                raise MemoryError
            optimizer.step()
        except MemoryError:
            continue
    return model


@case
def data_loader_with_workers(training):
    model = mlp()
    optimizer = training.wrap(sgd(model), model)
    generator = torch.Generator().manual_seed(4)
    data = torch.utils.data.TensorDataset(
        torch.randn(32, 6, generator=generator), torch.randn(32, 3, generator=generator)
    )
    for _ in range(2):
        for x, y in torch.utils.data.DataLoader(data, 8, num_workers=2):
            step(model, optimizer, *training.part(x, y))
    return model

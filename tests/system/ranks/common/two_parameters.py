"""A model of two parameters, whose gradients the rank program chooses, and the optimizers of shards."""

import gradbus.torch as gradbus
import torch
from lamb import Lamb

SHAPE = (300, 70)
OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    "adam": (torch.optim.Adam, {"betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.01}),
    "adamw": (torch.optim.AdamW, {"weight_decay": 0.1}),
    "adagrad": (torch.optim.Adagrad, {"weight_decay": 0.01}),
    "lamb": (Lamb, {"betas": (0.8, 0.95), "weight_decay": 0.05}),
}
NAMED = {"lamb": ",optimizer=lamb"}  # by the mode: no class of torch says it


def make(mode, lr=1.0, optimizer=torch.optim.SGD, compression=None, **options):
    weight = torch.nn.Parameter(torch.zeros(SHAPE))
    bias = torch.nn.Parameter(torch.zeros(3))
    plain = optimizer([weight, bias], lr=lr, **options)
    named = [("weight", weight), ("bias", bias)]
    return weight, bias, gradbus.DistributedOptimizer(
        plain, named, mode=mode, compression=compression
    )


def step(parameters, gradient):
    weight, bias, optimizer = parameters
    optimizer.zero_grad()
    ((weight * gradient).sum() + bias.sum()).backward()
    optimizer.step()

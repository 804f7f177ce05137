"""A model whose graph is another one in every other step."""

import torch
from torch import nn


class Changing(nn.Module):
    """Nested modules, a weight that two layers share, one that no loss uses, and a branch of every other step."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(6)
        self.outer = nn.ModuleDict({"first": nn.Linear(5, 16), "inner": nn.Sequential(nn.Linear(16, 16), nn.Tanh())})
        self.again = nn.Linear(16, 16)
        self.again.weight = self.outer["inner"][0].weight
        self.unused = nn.Linear(7, 7)
        self.branch = nn.Linear(16, 16)
        self.last = nn.Linear(16, 3)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        hidden = self.again(self.outer["inner"](torch.tanh(self.outer["first"](x))))
        return self.last(torch.tanh(self.branch(hidden) if self.calls % 2 else hidden))

"""Cases: models and optimizers."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import parametrizations, prune
from torch.utils.checkpoint import checkpoint
from training_cases import CASES, case, mlp

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1),
    "momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=1e-2),
    "nesterov": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, nesterov=True),
    "maximize": lambda p: torch.optim.SGD(p, 1e-3, maximize=True),
    "adam": lambda p: torch.optim.Adam(p, 0.01),
    "foreach": lambda p: torch.optim.Adam(p, 0.01, foreach=True),
    "fused": lambda p: torch.optim.Adam(p, 0.01, fused=True),
    "tensor_lr": lambda p: torch.optim.Adam(p, torch.tensor(0.01)),
    "amsgrad": lambda p: torch.optim.AdamW(p, 0.01, amsgrad=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, 0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 0.01, momentum=0.9, centered=True),
    "adadelta": torch.optim.Adadelta,
    "adamax": lambda p: torch.optim.Adamax(p, 0.01),
    "nadam": lambda p: torch.optim.NAdam(p, 0.01),
    "radam": lambda p: torch.optim.RAdam(p, 0.01),
    "asgd": lambda p: torch.optim.ASGD(p, 0.05, t0=2),
    "adafactor": lambda p: torch.optim.Adafactor(p, 0.01),
}
for _name, _make in OPTIMIZERS.items():

    @case(name=f"optimizer_{_name}")
    def _with_optimizer(training, make=_make):
        model = mlp()
        return training.loop(model, make(model.parameters()))


@case
def optimizer_lbfgs(training):
    model = mlp()
    optimizer = training.wrap(torch.optim.LBFGS(model.parameters(), 0.1, max_iter=4), model)
    for x, y in training.batches(3):

        def closure(x=x, y=y):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            return training.mean(loss)

        optimizer.step(closure)
    return model


@case
def optimizer_muon_and_sgd(training):
    model = mlp()
    named = dict(model.named_parameters())
    matrices = {k: p for k, p in named.items() if p.ndim == 2}
    vectors = {k: p for k, p in named.items() if p.ndim != 2}
    first = training.wrap(torch.optim.Muon(matrices.values(), 0.01), matrices.items())
    second = training.wrap(torch.optim.SGD(vectors.values(), 0.01), vectors.items())
    for x, y in training.batches():
        model.zero_grad()
        F.mse_loss(model(x), y).backward()
        first.step()
        second.step()
    return model


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.layers = kind(6, 8, 2, batch_first=True, bidirectional=True)
        self.out = nn.Linear(16, 3)

    def forward(self, x):
        return self.out(self.layers(x)[0][:, -1])


for _kind in (nn.LSTM, nn.GRU, nn.RNN):

    @case(name=f"model_{_kind.__name__}")
    def _recurrent(training, kind=_kind):
        model = Recurrent(kind)
        return training.loop(model, torch.optim.Adam(model.parameters(), 0.01), shape=(8, 5, 6))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True, kdim=6, vdim=6)
        self.norm = nn.LayerNorm(6)
        self.out = nn.Linear(6, 3)

    def forward(self, x):
        return self.out(self.norm(self.attention(x, x, x)[0] + x).mean(1))


class Convolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.ReLU())
        self.out = nn.Linear(36, 3)

    def forward(self, x):
        return self.out(self.layers(x.to(memory_format=torch.channels_last)).flatten(1))


class Checkpointed(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.shared = nn.Linear(6, 6)
        self.out = nn.Linear(6, 3)
        self.reentrant = reentrant

    def forward(self, x):
        x = x.clone().requires_grad_()
        for _ in range(3):
            x = checkpoint(lambda t: torch.tanh(self.shared(t)), x, use_reentrant=self.reentrant)
        return self.out(x)


class Odd(nn.Module):
    """A scalar, an empty parameter, two dtypes, complex weights."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.empty = nn.Parameter(torch.zeros(0))
        self.wide = nn.Linear(6, 6).double()
        self.complex = nn.Parameter(torch.randn(6, 3, dtype=torch.cfloat))

    def forward(self, x):
        x = self.wide(x.double()).to(torch.cfloat)
        return (x @ self.complex).abs() * self.scale + self.empty.sum()


class InTurns(nn.Module):
    """Half of its parameters get no gradient, which counts as zero: so without momentum."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList([nn.Linear(6, 3), nn.Linear(6, 3)])
        self.turn = 0

    def forward(self, x):
        self.turn += 1
        return self.parts[self.turn % 2](x)


def shared_layer():
    layer = nn.Linear(6, 6)
    return nn.Sequential(layer, nn.Tanh(), layer, nn.Tanh(), nn.Linear(6, 3))


def normed_weights():
    return nn.Sequential(
        parametrizations.weight_norm(nn.Linear(6, 8)), nn.Tanh(),
        parametrizations.orthogonal(nn.Linear(8, 8)), nn.Linear(8, 3),
    )  # fmt: skip


def pruned():
    model = mlp()
    prune.l1_unstructured(model[0], "weight", 0.5)
    return model


def hooked():
    model = mlp()
    model[2].register_full_backward_hook(lambda _, inputs, __: tuple(g if g is None else g * 0.5 for g in inputs))
    model[2].register_forward_hook(lambda _, __, output: output * 1.1)
    for parameter in model[4].parameters():
        parameter.register_hook(lambda gradient: gradient * 0.5)
    return model


MODELS = {
    "attention": (Attention, (8, 5, 6)),
    "channels_last": (lambda: Convolution().to(memory_format=torch.channels_last), (8, 3, 5, 5)),
    "reentrant_checkpoint": (lambda: Checkpointed(True), (8, 6)),
    "checkpoint": (lambda: Checkpointed(False), (8, 6)),
    "odd_parameters": (Odd, (8, 6)),
    "in_turns": (InTurns, (8, 6)),
    "shared_layer": (shared_layer, (8, 6)),
    "normed_weights": (normed_weights, (8, 6)),
    "pruned": (pruned, (8, 6)),
    "hooked": (hooked, (8, 6)),
    "fx": (lambda: torch.fx.symbolic_trace(mlp()), (8, 6)),
}
for _name, (_make, _shape) in MODELS.items():

    @case(name=f"model_{_name}")
    def _with_model(training, make=_make, shape=_shape):
        model = make()
        momentum = 0 if isinstance(model, InTurns) else 0.5
        return training.loop(model, torch.optim.SGD(model.parameters(), 0.1, momentum=momentum), shape=shape)


@case
def model_tied_embedding(training):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(10, 6)
            self.middle = nn.Linear(6, 6)
            self.out = nn.Linear(6, 10, bias=False)
            self.out.weight = self.embedding.weight

        def forward(self, words):
            return self.out(torch.tanh(self.middle(self.embedding(words))))

    model = Tied()
    optimizer = training.wrap(torch.optim.Adam(model.parameters(), 0.01), model)
    generator = torch.Generator().manual_seed(0)
    for _ in range(6):
        words = training.part(torch.randint(0, 10, (8,), generator=generator))
        optimizer.zero_grad()
        F.cross_entropy(model(words), (words + 1) % 10).backward()
        optimizer.step()
    return model


@case
def model_sparse_embedding_bag(training):
    model = nn.EmbeddingBag(20, 6, mode="sum", sparse=True)
    optimizer = training.wrap(torch.optim.SparseAdam(list(model.parameters()), 0.01), model)
    generator = torch.Generator().manual_seed(3)
    for _ in range(5):
        words = training.part(torch.randint(0, 20, (8, 4), generator=generator))
        optimizer.zero_grad()
        model(words).pow(2).mean().backward()
        optimizer.step()
    return model


assert len(CASES) > 30

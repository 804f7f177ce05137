"""DDP and FSDP2 on gradbus: trainings of many kinds equal one process. `dist_models.py STORE [CASE...]`

A case is a function of a place: alone on whole batches, or a rank with its part of each, in DDP or FSDP2.
"""

import contextlib
import copy
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch_group import RANK, SIZE, init

ROWS, STEPS = 8, 4
CASES = {}
NAMED_ONLY = set()


class Alone:
    def part(self, tensor):
        return tensor

    def wrap(self, model, **_):
        return model

    def without_exchange(self, _):
        return contextlib.nullcontext()

    def mean(self, loss):
        return loss.detach()

    def forward_in_parts(self, network, x):
        """As ranks do it: each normalizes its part, and running statistics are those of the first."""
        made = []
        for number, part in enumerate(x.chunk(SIZE)):
            kept = [buffer.clone() for buffer in network.buffers()]
            made.append(network(part))
            for buffer, value in zip(network.buffers(), kept) if number else ():
                buffer.data.copy_(value)  # autograd has kept it, and does not use it
        return torch.cat(made)

    def values(self, model):
        return [*model.parameters(), *model.buffers()]


class InDdp(Alone):
    def part(self, tensor):
        return tensor.chunk(SIZE)[RANK]

    def wrap(self, model, **options):
        return DistributedDataParallel(model, **{"bucket_cap_mb": 0.001, **options})

    def without_exchange(self, network):
        return network.no_sync()

    def mean(self, loss):
        total = loss.detach().clone()
        dist.all_reduce(total, dist.ReduceOp.AVG)
        return total

    def forward_in_parts(self, network, x):
        return network(x)

    def values(self, model):
        return [*model.parameters(), *(model.buffers() if RANK == 0 else ())]


class InFsdp(InDdp):
    def wrap(self, model, **_):
        for layer in model.children():
            if isinstance(layer, (nn.Linear, nn.Sequential)):
                fully_shard(layer)
        return fully_shard(model)

    @contextlib.contextmanager
    def without_exchange(self, network):
        network.set_requires_gradient_sync(False)
        yield
        network.set_requires_gradient_sync(True)

    def values(self, model):
        return [parameter.full_tensor() for parameter in model.parameters()]


BOTH, DDP = (InDdp, InFsdp), (InDdp,)


def case(places=BOTH, tolerance=1e-5):
    def add(function):
        CASES[function.__name__] = (function, places, tolerance)
        return function

    return add


def named_only(function):
    """The case takes long: it runs only where its name is given."""
    NAMED_ONLY.add(function.__name__)
    return function


def batches(place, shape=(6,), steps=STEPS):
    generator = torch.Generator().manual_seed(2)
    for _ in range(steps):
        x, y = torch.randn(ROWS, *shape, generator=generator), torch.randn(ROWS, 3, generator=generator)
        yield place.part(x), place.part(y)


def words(place):
    for x, _ in batches(place):
        yield (x.abs() * 5).long().clamp(0, 9)


def train(place, model, optimizer, network, forward=None, after=lambda: None, shape=(6,)):
    forward = network if forward is None else forward
    for x, y in batches(place, shape):
        optimizer.zero_grad()
        F.mse_loss(forward(x), y).backward()
        after()
        optimizer.step()
    return model


def mlp():
    return nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 3))


def adam(model):
    return torch.optim.Adam(model.parameters(), 0.01)


@case()
def plain(place):
    model = mlp()
    network = place.wrap(model)
    return train(place, model, adam(model), network)


@case()
def convolutions_with_batch_norm(place):
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(36, 3))
    network = place.wrap(model)
    return train(
        place, model, torch.optim.SGD(model.parameters(), 0.05, momentum=0.9), network,
        lambda x: place.forward_in_parts(network, x), shape=(2, 5, 5),
    )  # fmt: skip


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.out = nn.Linear(8, 10, bias=False)
        self.out.weight = self.embedding.weight

    def forward(self, x):
        return F.linear(self.layer(self.embedding(x)), self.embedding.weight)


@case()
def transformer_with_tied_weights(place):
    model = Tied()
    network = place.wrap(model) if not isinstance(place, InFsdp) else fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)  # attention has gradients of almost 0
    for x in words(place):
        optimizer.zero_grad()
        F.cross_entropy(network(x).flatten(0, 1), ((x + 1) % 10).flatten()).backward()
        optimizer.step()
    return model


class Parts(nn.Module):
    """Odd forward passes leave ``second`` out."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.never = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)
        self.out = nn.Linear(6, 3)
        self.passes = 0

    def forward(self, x):
        self.passes += 1
        x = torch.tanh(self.first(x))
        return self.out(x if self.passes % 2 else self.second(x))


@case()
def unused_parameters(place):
    model = Parts()
    network = place.wrap(model, find_unused_parameters=True)
    return train(place, model, torch.optim.SGD(model.parameters(), 0.1), network)


@case()
def frozen_parameters(place):
    model = mlp()
    model[2].requires_grad_(False)
    network = place.wrap(model)
    return train(place, model, adam(model), network)


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared, self.out = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        return self.out(torch.tanh(self.shared(torch.tanh(self.shared(x)))))


@case()
def shared_parameters(place):
    model = Twice()
    network = place.wrap(model)
    return train(place, model, adam(model), network)


@case(DDP)
def sparse_parameters(place):
    model = nn.EmbeddingBag(10, 3, sparse=True)
    network = place.wrap(model)
    optimizer = torch.optim.SparseAdam(list(model.parameters()), 0.01)
    for x in words(place):
        optimizer.zero_grad()
        network(x).square().mean().backward()
        assert model.weight.grad.is_sparse
        optimizer.step()
    return model


class Complex(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 3, dtype=torch.cfloat))

    def forward(self, x):
        return (x.to(torch.cfloat) @ self.weight).abs()


@case(DDP)
def complex_parameters(place):
    model = Complex()
    network = place.wrap(model)
    return train(place, model, torch.optim.SGD(model.parameters(), 0.1), network)


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.out = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        return self.out(checkpoint(lambda t: torch.tanh(self.layer(t)), x, use_reentrant=False))


@case()
def activations_made_again(place):
    model = Checkpointed()
    network = place.wrap(model)
    return train(place, model, adam(model), network)


@case()
def two_networks_and_optimizers(place):
    maker, critic = mlp(), nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    networks = [place.wrap(model) for model in (maker, critic)]
    optimizers = [adam(model) for model in (maker, critic)]
    for x, y in batches(place):
        optimizers[1].zero_grad()
        (networks[1](networks[0](x).detach()).mean() - F.softplus(networks[1](y)).mean()).backward()
        optimizers[1].step()
        optimizers[0].zero_grad()
        critic.requires_grad_(False)
        (-critic(networks[0](x)).mean()).backward()
        critic.requires_grad_(True)
        optimizers[0].step()
    return nn.ModuleList([maker, critic])


@case(DDP)
def lbfgs(place):
    model = mlp()
    network = place.wrap(model)
    optimizer = torch.optim.LBFGS(model.parameters(), 0.1, max_iter=4)
    for x, y in batches(place, steps=2):

        def closure(x=x, y=y):
            optimizer.zero_grad()
            loss = F.mse_loss(network(x), y)
            loss.backward()
            return place.mean(loss)

        optimizer.step(closure)
    return model


@case(tolerance=2e-2)
def autocast_to_bfloat16(place):
    model = mlp()
    network = place.wrap(model)

    def forward(x):
        with torch.autocast("cpu", torch.bfloat16):
            return network(x).float()

    return train(place, model, torch.optim.SGD(model.parameters(), 0.1), network, forward)


WHOLE = {"bucket_cap_mb": 25}  # the compiler cuts the graph where buckets end


@case()
def compiled(place):
    model = mlp()
    network = place.wrap(model, **WHOLE)
    return train(place, model, adam(model), network, torch.compile(network, backend="aot_eager"))


@case(DDP)
def compiled_before_it_is_wrapped(place):
    model = mlp()
    network = place.wrap(torch.compile(model, backend="aot_eager"), **WHOLE)
    return train(place, model, adam(model), network)


def compiled_autograd(place, backend="aot_eager"):
    """torch asks for its reducer in Python: the compiler sees its all-reduces."""
    model = mlp()
    options = {"optimize_ddp": "python_reducer", "compiled_autograd": type(place) is not Alone}
    with torch._dynamo.config.patch(options):
        network = place.wrap(model, **WHOLE)
        optimizer = adam(model)
        forward_and_backward = torch.compile(lambda x, y: F.mse_loss(network(x), y).backward(), backend=backend)
        for x, y in batches(place):
            optimizer.zero_grad()
            forward_and_backward(x, y)
            optimizer.step()
    return model


case(DDP)(compiled_autograd)


@named_only
@case(DDP)
def inductor_compiled_autograd(place):
    return compiled_autograd(place, "inductor")


@case()
def accumulation_clipping_and_a_schedule(place):
    model = mlp()
    network = place.wrap(model)
    optimizer = adam(model)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=STEPS)
    for x, y in batches(place):
        optimizer.zero_grad()
        with place.without_exchange(network):
            F.mse_loss(network(x.flip(1)), y).backward()
        F.mse_loss(network(x), y).backward()
        nn.utils.clip_grad_norm_(network.parameters(), 0.2)
        optimizer.step()
        schedule.step()
    return model


@case()
def resumed_in_the_middle(place):
    """From the state of an earlier model and optimizer."""
    kept = None
    for _ in range(2):
        model = mlp()
        network = place.wrap(model)
        optimizer = adam(model)
        if kept is not None:
            model.load_state_dict(kept[0])
            optimizer.load_state_dict(kept[1])
        train(place, model, optimizer, network)
        kept = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    return model


def run(function, place):
    torch.manual_seed(1)
    return place.values(function(place))


def check(name):
    function, places, tolerance = CASES[name]
    expected = run(function, Alone())
    for place in places:
        found = run(function, place())
        for one, mine in zip(expected, found):
            difference = (one.detach() - mine.detach()).abs().max() if one.numel() else 0
            assert difference <= tolerance, (name, place.__name__, difference)
        parameters = [p.detach() for p in found if isinstance(p, nn.Parameter)]
        for mine in parameters:
            everywhere = [torch.empty_like(mine) for _ in range(SIZE)]
            dist.all_gather(everywhere, mine)
            assert all(torch.equal(mine, other) for other in everywhere), (name, place.__name__)


init()
for name in sys.argv[2:] or CASES.keys() - NAMED_ONLY:
    print(name, flush=True)
    check(name)
dist.destroy_process_group()
print("ok")

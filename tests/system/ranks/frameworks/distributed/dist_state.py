"""gradbus.state() in torch.distributed.checkpoint: `dist_state.py STORE FOLDER save|load`.

`save` trains three steps, saves, and checks that a resumed run is the uninterrupted one. `load` goes on from the file
of another number of ranks.
"""

import pathlib
import sys

import gradbus.torch as gradbus
import numpy
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch_group import RANK, SIZE, init, raises

FOLDER = pathlib.Path(sys.argv[2])
ROWS = 8
STEPS = 3


def model():
    torch.manual_seed(5)
    return torch.nn.Sequential(torch.nn.Linear(10, 200), torch.nn.Tanh(), torch.nn.Linear(200, 90))


def train(network, optimizer, steps, alone=False):
    for step in steps:
        data = torch.randn(ROWS, 10, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        network(data if alone else data.chunk(SIZE)[RANK]).square().mean().backward()
        optimizer.step()


def make(kind):
    network = model()
    options = {
        "dense": {},
        "sharded": {"shard": True},
        "compressed": {"compression": "topk:ratio=0.05"},
        "localsgd": {"mode": "diloco:H=2"},
    }[kind]
    plain = torch.optim.AdamW(network.parameters(), lr=0.01)
    return network, gradbus.DistributedOptimizer(plain, network.named_parameters(), **options)


def values(network):
    return [parameter.detach().clone() for parameter in network.parameters()]


def restored(kind):
    network, optimizer = make(kind)
    train(network, optimizer, range(90, 92))  # leaves a state that must go
    contents = {"model": network.state_dict(), "training": gradbus.state(optimizer)}
    dcp.load(contents, checkpoint_id=str(FOLDER / kind))
    network.load_state_dict(contents["model"])
    return network, optimizer


def save(kind):
    network, optimizer = make(kind)
    train(network, optimizer, range(STEPS))
    contents = {"model": network.state_dict(), "training": gradbus.state(optimizer)}
    saving = dcp.async_save(contents, checkpoint_id=str(FOLDER / kind))
    train(network, optimizer, range(STEPS, 2 * STEPS))  # the file has what there was at the call
    saving.result()
    again, resumed = restored(kind)
    train(again, resumed, range(STEPS, 2 * STEPS))
    for one, other in zip(values(network), values(again)):
        assert torch.equal(one, other), (kind, (one - other).abs().max())


def load(kind):
    network, optimizer = restored(kind)
    train(network, optimizer, range(STEPS, 2 * STEPS))
    optimizer.flush()
    everywhere = gradbus.allgather_object([value.tolist() for value in values(network)])
    assert all(other == everywhere[0] for other in everywhere)
    if kind in ("dense", "sharded"):
        alone = model()
        train(alone, torch.optim.AdamW(alone.parameters(), lr=0.01), range(2 * STEPS), alone=True)
        for one, other in zip(values(network), values(alone)):
            assert torch.allclose(one, other, rtol=0, atol=1e-5), (kind, (one - other).abs().max())


def refusals():
    plain = torch.optim.SGD(model().parameters(), lr=0.1)
    raises(gradbus.InvalidError, ["SGD is not distributed"], lambda: gradbus.state(plain))
    optimizer = make("dense")[1]
    state = gradbus.state(optimizer)
    group = optimizer.param_groups[0]
    given = {"array": numpy.arange(6.0).reshape(2, 3)[:, ::2], "none": numpy.zeros((0, 2), "int16"), "list": [(1, 0.1)]}
    group["more"] = given
    saved = state.state_dict()
    group["more"] = None
    state.load_state_dict(saved)
    loaded = optimizer.param_groups[0]["more"]
    assert loaded["list"] == given["list"] and loaded["array"].tolist() == [[0, 2], [3, 5]]
    assert loaded["array"].dtype == float and loaded["none"].shape == (0, 2) and loaded["none"].dtype == numpy.int16
    loaded["array"] += 1
    optimizer.param_groups[0]["more"] = [object]
    if RANK == 0:
        raises(gradbus.InvalidError, ["['param_groups'][0]['more'][0] is a type", "numpy arrays"], state.state_dict)
    else:
        state.state_dict()
    raises(gradbus.InvalidError, ["no bytes"], lambda: state.load_state_dict({}))
    damaged = {"gradbus": b"x" * 100}
    raises(gradbus.InvalidError, ["GB-F118", "no state of Gradbus"], lambda: state.load_state_dict(damaged))


init()
gradbus.init()
for kind in ("dense", "sharded", "compressed", "localsgd"):
    {"save": save, "load": load}[sys.argv[3]](kind)
refusals()
dist.destroy_process_group()
print("ok")

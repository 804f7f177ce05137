"""FSDP2, its checkpoints, ZeroRedundancyOptimizer, DTensor and HSDP on gradbus: as one process within 1e-5."""

import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel
from torch_group import RANK, SIZE, init

ROWS = 8  # of a batch


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))


def train(network, optimizer, rows=slice(RANK * ROWS // SIZE, (RANK + 1) * ROWS // SIZE)):
    generator = torch.Generator().manual_seed(1)
    for _ in range(5):
        x, y = torch.randn(ROWS, 8, generator=generator), torch.randn(ROWS, 4, generator=generator)
        optimizer.zero_grad()
        nn.functional.mse_loss(network(x[rows]), y[rows]).backward()
        optimizer.step()


def adam(network):
    return torch.optim.Adam(network.parameters(), 0.01)


def compare(parameters):
    for one, found in zip(whole.parameters(), parameters, strict=True):
        assert torch.allclose(one, found, rtol=0, atol=1e-5), (one - found).abs().max()


def sharded(mesh):
    network = model()
    for layer in network:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    return fully_shard(network, mesh=mesh)


def full(network):
    return [parameter.full_tensor() for parameter in network.parameters()]


init()
whole = model()
train(whole, adam(whole), slice(None))
line = init_device_mesh("cpu", (SIZE,))
fsdp = sharded(line)
train(fsdp, adam(fsdp))
compare(full(fsdp))

checkpoint.save({"model": fsdp.state_dict()}, checkpoint_id=sys.argv[2])
loaded = sharded(line)
state = {"model": loaded.state_dict()}
checkpoint.load(state, checkpoint_id=sys.argv[2])
loaded.load_state_dict(state["model"])
compare(full(loaded))

ddp = DistributedDataParallel(model())
train(ddp, ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.Adam, lr=0.01))
compare(ddp.parameters())

square = torch.arange(16.0).view(4, 4)
rows, columns = (distribute_tensor(square, line, [Shard(axis)]) for axis in (0, 1))
assert torch.equal((rows @ columns).full_tensor(), square @ square)
assert torch.equal(rows.redistribute(line, [Shard(1)]).to_local(), columns.to_local())
if SIZE == 4:
    hybrid = sharded(init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicas", "shards")))
    train(hybrid, adam(hybrid))
    compare(full(hybrid))
dist.destroy_process_group()
print("ok")

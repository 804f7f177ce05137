"""DistributedDataParallel on gradbus: the parameters of one process within 1e-5, the same bits on every rank."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch_group import RANK, SIZE, init

STEPS = 4


def model():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(20, 300), torch.nn.Tanh(), torch.nn.Linear(300, 5))


def train(network, inner, rows):
    optimizer = torch.optim.SGD(inner.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(2)
    for _ in range(STEPS):
        data = torch.randn(8 * SIZE, 20, generator=generator)[rows]
        optimizer.zero_grad()
        network(data).square().mean().backward()
        optimizer.step()
    return [parameter.detach() for parameter in inner.parameters()]


init()
whole = model()
expected = train(whole, whole, slice(None))
part = model()
if RANK:  # DDP starts with the parameters of rank 0
    torch.nn.init.zeros_(part[0].weight)
found = train(DistributedDataParallel(part, bucket_cap_mb=0.01), part, slice(8 * RANK, 8 * RANK + 8))
for mine, one in zip(found, expected):
    assert torch.allclose(mine, one, rtol=0, atol=1e-5), (mine - one).abs().max()
    everywhere = [torch.empty_like(mine) for _ in range(SIZE)]
    dist.all_gather(everywhere, mine)
    assert all(torch.equal(mine, other) for other in everywhere)
dist.destroy_process_group()
print("ok")

"""A rank: hvd.join() while a job searches for buckets, a schedule or codecs, against one process.

Ranks take turns to have the fewest batches. In the first epoch one has none.
"""

import os

import gradbus.horovod.torch as hvd
import torch

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
EPOCHS = [(0, 6, 3), (4, 0, 9), (20, 27, 14), (5, 5, 5), (14, 1, 18)]  # batches of each rank
# A codec that is tried loses some of the gradients.
TOLERANCE = 0.02 if os.environ.get("GRADBUS_COMPRESSION") else 1e-5

torch.manual_seed(1)


def a_model():
    return torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 300),
                               torch.nn.ReLU(), torch.nn.Linear(300, 2))  # fmt: skip


def loss(model, epoch, step, rank):
    numbers = torch.Generator().manual_seed(10000 * epoch + 100 * step + rank)
    return model(torch.randn(4, 64, generator=numbers)).square().mean()


ours, alone = a_model(), a_model()
alone.load_state_dict(ours.state_dict())
reference = torch.optim.SGD(alone.parameters(), lr=0.05)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(ours.parameters(), lr=0.05), named_parameters=ours.named_parameters()
)
for epoch, batches in enumerate(EPOCHS):
    for step in range(max(batches[:SIZE])):
        losses = [loss(alone, epoch, step, rank) for rank in range(SIZE) if step < batches[rank]]
        reference.zero_grad()
        (sum(losses) / SIZE).backward()
        reference.step()
        if step < batches[RANK]:
            optimizer.zero_grad()
            loss(ours, epoch, step, RANK).backward()
            optimizer.step()
    last = hvd.join()
    assert batches[last] == max(batches[:SIZE]), (last, batches)
    hvd.broadcast_parameters(ours.state_dict(), root_rank=last)
    for name, found in ours.state_dict().items():
        assert torch.allclose(found, alone.state_dict()[name], atol=TOLERANCE), (epoch, name)
print("ok")

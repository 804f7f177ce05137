"""A rank: elastic training in Horovod's form, with a sampler whose samples are each used once an epoch.

    hvd_elastic.py 0         nothing is lost
    hvd_elastic.py FOLDER    an agent is killed once FOLDER/reached is there, and started again before FOLDER/go is
"""

import pathlib
import sys
import time

import gradbus.horovod.torch as hvd
import torch

SAMPLES, BATCH, EPOCHS = 48, 2, 2
folder = None if sys.argv[1] == "0" else pathlib.Path(sys.argv[1])


def wait_for_the_loss(state):
    """In the middle of the second epoch, between two commits."""
    if folder is None or state.epoch != 1 or state.batch != 3:
        return
    (folder / "reached").touch()
    while not (folder / "go").exists():
        time.sleep(0.01)


@hvd.elastic.run
def train(state):
    while state.epoch < EPOCHS:
        loader = torch.utils.data.DataLoader(data, batch_size=BATCH, sampler=sampler)
        for (numbers,) in loader:
            wait_for_the_loss(state)
            state.optimizer.zero_grad()
            (model.weight * numbers.sum()).sum().backward()
            state.optimizer.step()
            state.used = state.used + numbers.tolist()
            state.sampler.record_batch(state.batch, BATCH)
            state.batch += 1
            if state.batch % 2 == 0:
                state.commit()
            else:
                state.check_host_updates()
        state.epoch += 1
        state.batch = 0
        state.sampler.set_epoch(state.epoch)
        state.commit()
    return state.used


hvd.init()
data = torch.utils.data.TensorDataset(torch.arange(float(SAMPLES)))
sampler = hvd.elastic.ElasticSampler(data, seed=3)
assert len(sampler) == SAMPLES // hvd.size() and list(sampler) != sorted(sampler)
uneven = hvd.elastic.ElasticSampler(list(range(hvd.size() + 1)), shuffle=False)
assert len(uneven) == 2 and sorted(sum(hvd.allgather_object(list(uneven)), []))[-1] == hvd.size()

model = torch.nn.Linear(1, 1, bias=False)
with torch.no_grad():
    model.weight.fill_(float(hvd.rank()))  # the state gives all ranks that of rank 0
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1 / 64, momentum=0.0), op=hvd.Sum)
state = hvd.elastic.TorchState(model=model, optimizer=optimizer, epoch=0, batch=0, sampler=sampler, used=[])
resets = []
state.register_reset_callbacks([lambda: resets.append(state.batch)])
used = train(state)

expected = [float(number) for number in range(SAMPLES) for _ in range(EPOCHS)]
everything = sorted(sum(hvd.allgather_object(used), []))
assert everything == expected, everything
assert model.weight.item() == -sum(expected) / 64, model.weight
assert resets == ([] if folder is None else [2]), resets

for _ in range(1 + hvd.rank()):  # joining works in the session after the loss, too
    optimizer.zero_grad()
    model.weight.sum().backward()
    optimizer.step()
assert hvd.join() == hvd.size() - 1
steps = sum(rank + 1 for rank in range(hvd.size()))
if hvd.rank() == hvd.size() - 1:
    assert model.weight.item() == -(sum(expected) + steps) / 64, model.weight

values = hvd.elastic.ObjectState(hvd.broadcast_object, hvd.rank, step=hvd.rank() + 5)
values.sync()
assert values.step == 5 and isinstance(values, hvd.elastic.State)
values.step = 7
values.restore()
assert values.step == 5
hvd.barrier()
print("ok")

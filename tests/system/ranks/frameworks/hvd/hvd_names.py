"""A rank: what Horovod's tests ask of names, of models that differ and of the state that a broadcast leaves."""

import warnings

import gradbus.horovod.torch as hvd
import gradbus.torch
import pytest
import torch

with pytest.raises(ValueError, match="two parameters are named 'weight'"):  # also before init()
    nets = [torch.nn.Linear(1, 1, bias=False) for _ in range(2)]
    pairs = [pair for net in nets for pair in net.named_parameters()]
    hvd.DistributedOptimizer(torch.optim.SGD([p for _, p in pairs], lr=0.1), named_parameters=pairs)

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()


def an_operation_of_a_name_in_flight_is_refused(start, result):
    """Rank 0 comes first, so its operation cannot be over."""
    if RANK == 0:
        handle = start()
        with pytest.raises(ValueError, match="still in flight"):
            start()
    hvd.barrier()
    if RANK > 0:
        handle = start()
    assert torch.equal(hvd.synchronize(handle), result)
    assert torch.equal(hvd.synchronize(start()), result)  # the name is free again
    hvd.barrier()


ones = torch.ones(6)
if SIZE > 1:
    sums = torch.full((6,), float(SIZE))
    an_operation_of_a_name_in_flight_is_refused(lambda: hvd.allreduce_async(ones, name="n", op=hvd.Sum), sums)
    an_operation_of_a_name_in_flight_is_refused(lambda: hvd.allgather_async(ones, name="n"), torch.ones(6 * SIZE))
    an_operation_of_a_name_in_flight_is_refused(lambda: hvd.broadcast_async(ones, 0, name="n"), ones)
    an_operation_of_a_name_in_flight_is_refused(
        lambda: hvd.reducescatter_async(torch.ones(SIZE), name="n", op=hvd.Sum), torch.full((1,), float(SIZE))
    )

model = torch.nn.Linear(2, 2)
with torch.no_grad():
    model.weight.fill_(RANK)
    model.bias.zero_()
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.5))
assert list(optimizer._parameter_names.values()) == ["group0.0", "group0.1"]
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
assert not model.weight.grad.any()
optimizer.zero_grad()
(model.weight.sum() * (RANK + 1)).backward()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    optimizer.step()
assert (SIZE > 1) == any("GB-O906" in str(one.message) for one in caught), caught
assert torch.allclose(model.weight, torch.full((2, 2), RANK - 0.5 * (SIZE + 1) / 2)), model.weight

strict = torch.nn.Linear(2, 2)
with torch.no_grad():
    strict.weight.fill_(RANK)
optimizer = gradbus.torch.DistributedOptimizer(torch.optim.SGD(strict.parameters(), lr=0.5))
strict.weight.sum().backward()
if SIZE > 1:
    with pytest.raises(gradbus.MismatchError, match="GB-O906"):
        optimizer.step()
with pytest.raises(ValueError, match="replicas='some'"):
    gradbus.torch.DistributedOptimizer(torch.optim.SGD(strict.parameters(), lr=0.5), replicas="some")
hvd.barrier()
print("ok")

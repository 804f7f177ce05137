"""A rank: every operation in every dtype, against values worked out from the rank numbers."""

import array

import gradbus
import numpy as np
import torch
from gradbus.torch import DistributedOptimizer, broadcast_parameters

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
NUMPY_DTYPES = ("float32", "float64", "float16", *INTEGERS)
TORCH_DTYPES = tuple(name for name in (*NUMPY_DTYPES, "bfloat16") if hasattr(torch, name))


def value(rank):
    """Small whole numbers: exact in every dtype, and so are their sums."""
    return np.arange(7 * 3).reshape(7, 3) % 5 + rank


def check_numpy(rank, size):
    total = sum(value(r) for r in range(size))
    for name in NUMPY_DTYPES:
        mine = value(rank).astype(name)
        result = gradbus.allreduce(mine, op=gradbus.Sum)
        assert isinstance(result, np.ndarray) and result.dtype == mine.dtype and result is not mine
        np.testing.assert_array_equal(result, total.astype(name))
        np.testing.assert_array_equal(mine, value(rank).astype(name))
        mean = gradbus.allreduce(mine)
        expected = total // size if "int" in name else (total / size).astype(name)
        np.testing.assert_allclose(mean, expected, rtol=1e-3 if name == "float16" else 1e-6)


def check_torch(rank, size):
    total = torch.from_numpy(sum(value(r) for r in range(size)))
    for name in TORCH_DTYPES:
        dtype = getattr(torch, name)
        mine = torch.from_numpy(value(rank)).to(dtype)
        result = gradbus.allreduce(mine, name=f"torch/{name}", op=gradbus.Sum)
        assert result.dtype == dtype and torch.equal(result, total.to(dtype)), name
        assert gradbus.allreduce_(mine, op=gradbus.Sum) is mine and torch.equal(
            mine, total.to(dtype)
        )


def check_layouts(rank, size):
    total = torch.from_numpy(sum(value(r) for r in range(size))).float()
    tensor = torch.from_numpy(value(rank)).float()
    assert torch.equal(gradbus.allreduce(tensor.t(), op=gradbus.Sum), total.t())
    wide = torch.zeros(7, 6)
    wide[:, ::2] = tensor
    gradbus.allreduce_(wide[:, ::2], op=gradbus.Sum)
    assert torch.equal(wide[:, ::2], total) and wide[:, 1::2].abs().sum() == 0
    array = np.asfortranarray(value(rank).astype("float32"))
    gradbus.allreduce_(array, op=gradbus.Sum)
    np.testing.assert_array_equal(array, total.numpy())
    assert gradbus.allreduce(torch.tensor(float(rank)), op=gradbus.Sum).item() == sum(range(size))
    assert gradbus.allreduce(np.float64(rank), op=gradbus.Sum) == sum(range(size))
    assert gradbus.allreduce(torch.empty(0, 4)).shape == (0, 4)
    grown = torch.full((3,), float(rank), requires_grad=True)
    assert torch.equal(
        gradbus.allreduce(grown, op=gradbus.Sum), torch.full((3,), float(sum(range(size))))
    )


class OnlyInterface:
    """Speaks __array_interface__ and nothing else."""

    def __init__(self, array):
        self.array = array
        self.__array_interface__ = array.__array_interface__


def check_other_exporters(rank, size):
    words = bytearray([rank + 1] * 5)
    gradbus.allreduce_(words, op=gradbus.Sum)
    assert words == bytearray([sum(range(1, size + 1))] * 5)
    shorts = array.array("H", [60000 + rank, rank])
    gradbus.allreduce_(shorts, op=gradbus.Max)
    assert shorts.tolist() == [60000 + size - 1, size - 1]
    for dtype in ("int32", "uint16", "uint32", "uint64"):
        held = OnlyInterface(np.full(4, rank, dtype=dtype))
        gradbus.allreduce_(held, op=gradbus.Sum)
        np.testing.assert_array_equal(held.array, np.full(4, sum(range(size))))


def check_allgather(rank, size):
    rows = np.full((rank, 2), rank, dtype="float32")  # rank 0 brings none
    expected = np.concatenate([np.full((r, 2), r) for r in range(size)])
    np.testing.assert_array_equal(gradbus.allgather(rows), expected)
    flags = torch.tensor([rank % 2 == 0, True])
    everywhere = gradbus.allgather(flags)
    assert everywhere.dtype == torch.bool
    assert everywhere.tolist() == [v for r in range(size) for v in (r % 2 == 0, True)]
    assert gradbus.allgather(torch.tensor(rank)).tolist() == list(range(size))


def check_broadcast(rank, size):
    for root in range(size):
        mine = torch.full((2, 3), float(rank))
        assert torch.equal(gradbus.broadcast(mine, root_rank=root), torch.full((2, 3), float(root)))
        assert torch.equal(mine, torch.full((2, 3), float(rank)))
        gradbus.broadcast_(mine.t(), root_rank=root)
        assert torch.equal(mine, torch.full((2, 3), float(root)))
    flags = np.array([rank == 0, False])
    assert gradbus.broadcast_(flags) is flags and flags.tolist() == [True, False]
    assert gradbus.broadcast(torch.tensor([rank + 1j])).tolist() == [1j]


def check_torch_collectives(rank, size):
    """The shapes and types that torch users get back; values: collectives.py."""
    flags = torch.tensor([rank == 0, True, False])
    assert gradbus.allreduce(flags, op=gradbus.Max).tolist() == [True, True, False]
    assert gradbus.allreduce_(flags.clone(), op=gradbus.BitAnd).tolist() == [size == 1, True, False]
    rows = torch.arange(size * 6.0).reshape(size * 2, 3).to(torch.bfloat16)
    shard = gradbus.reducescatter(rows, op=gradbus.Max)
    assert shard.dtype == torch.bfloat16 and torch.equal(shard, rows[rank * 2 : rank * 2 + 2])
    swapped, splits = gradbus.alltoall(rows, torch.full((size,), 2))
    assert splits.dtype == torch.int64 and splits.tolist() == [2] * size
    assert torch.equal(swapped, rows[rank * 2 : rank * 2 + 2].repeat(size, 1))
    assert torch.equal(gradbus.alltoall(rows.t().contiguous().t()), swapped)
    part = gradbus.scatter(rows if rank == 0 else torch.empty(2, 3, dtype=torch.bfloat16))
    assert torch.equal(part, rows[rank * 2 : rank * 2 + 2])
    gathered = gradbus.gather(torch.tensor([rank > 0]), root_rank=size - 1)
    if rank == size - 1:
        assert gathered.dtype == torch.bool and gathered.tolist() == [r > 0 for r in range(size)]
    else:
        assert gathered is None
    mean, flag = gradbus.grouped_allreduce([rows, flags], op=gradbus.Max)
    assert torch.equal(mean, rows) and flag.dtype == torch.bool
    grown = torch.ones(2, requires_grad=True)
    total = gradbus.reduce(grown, size - 1, op=gradbus.Sum)  # ranks that are not the root run backward through zeros
    assert total.tolist() == ([float(size)] * 2 if rank == size - 1 else [0.0] * 2)
    assert gradbus.reduce(grown.detach(), size - 1, op=gradbus.Sum) is None or rank == size - 1
    halves = gradbus.allreduce(torch.ones(3), op=gradbus.Adasum)
    assert torch.equal(halves, torch.ones(3))  # equal gradients are averaged


def check_process_set_of_parameters(rank, size):
    """Two models, one for each half of the ranks."""
    even, odd = list(range(0, size, 2)), list(range(1, size, 2))
    sets = [gradbus.add_process_set(ranks) for ranks in (even, odd) if ranks]
    mine = sets[0] if rank in even else sets[1]
    layer = torch.nn.Linear(2, 1, bias=False)
    torch.nn.init.constant_(layer.weight, float(rank))
    broadcast_parameters(layer, root_rank=mine.ranks[0], process_set=mine)
    assert torch.equal(layer.weight, torch.full((1, 2), float(mine.ranks[0])))
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    optimizer = DistributedOptimizer(optimizer, layer.named_parameters(), process_set=mine)
    layer(torch.full((1, 2), float(rank))).sum().backward()
    optimizer.step()
    mean = sum(mine.ranks) / mine.size()
    assert torch.allclose(layer.weight, torch.full((1, 2), mine.ranks[0] - mean))
    gradbus.barrier()
    for process_set in sets:
        gradbus.remove_process_set(process_set)


def check_objects(rank, size):
    thing = {"rank": rank, "text": "x" * (5000 * rank)}
    for root in range(size):
        assert gradbus.broadcast_object(thing, root_rank=root) == {
            "rank": root,
            "text": "x" * (5000 * root),
        }
    assert gradbus.allgather_object(thing)[size - 1]["text"] == "x" * (5000 * (size - 1))
    assert gradbus.broadcast_object(None if rank else 7, name="seven") == 7


def check_async(rank, size):
    """Every rank starts and waits in an order of its own."""
    names = [f"async/{index}" for index in range(12)]
    order = names[rank * 5 % 12 :] + names[: rank * 5 % 12]
    handles = {
        n: gradbus.allreduce_async(np.full(9, rank + len(n), "float64"), n, gradbus.Sum)
        for n in order
    }
    for name in reversed(order):
        expected = sum(r + len(name) for r in range(size))
        np.testing.assert_array_equal(gradbus.synchronize(handles[name]), np.full(9, expected))
        assert gradbus.poll(handles[name])
    gathered = gradbus.allgather_async(np.array([rank]))
    copied = gradbus.broadcast_async(np.array([rank * 2.5]), root_rank=size - 1)
    assert gradbus.synchronize(copied) == (size - 1) * 2.5
    assert gradbus.synchronize(gathered).tolist() == list(range(size))


def main():
    gradbus.init()
    rank, size = gradbus.rank(), gradbus.size()
    assert 0 <= gradbus.local_rank() < gradbus.local_size() <= size
    assert 0 <= gradbus.cross_rank() < gradbus.cross_size() <= 2
    for check in (
        check_numpy,
        check_torch,
        check_layouts,
        check_other_exporters,
        check_allgather,
        check_broadcast,
        check_objects,
        check_async,
        check_torch_collectives,
        check_process_set_of_parameters,
    ):
        check(rank, size)
        gradbus.barrier()
    gradbus.shutdown()
    print("ok")


if __name__ == "__main__":
    main()

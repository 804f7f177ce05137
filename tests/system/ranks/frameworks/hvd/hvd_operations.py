"""A rank: the operations of gradbus.horovod.torch, compared with results that are worked out here."""

import warnings

import gradbus
import gradbus.horovod.torch as hvd
import pytest
import torch


def tensor_of(rank, shape=(3, 4), dtype=torch.float32):
    """What that rank brings; small whole numbers, so sums are exact."""
    numbers = torch.arange(torch.Size(shape).numel()).reshape(shape)
    return (numbers + 10 * rank + 1).to(dtype)


def everyone(shape=(3, 4), dtype=torch.float32):
    return torch.stack([tensor_of(rank, shape, dtype) for rank in range(hvd.size())])


def case_questions():
    assert hvd.is_initialized()
    assert 0 <= hvd.local_rank() < hvd.local_size() <= hvd.size()
    assert 0 <= hvd.cross_rank() < hvd.cross_size()
    nodes = hvd.allgather_object((gradbus.cross_rank(), hvd.local_rank(), hvd.local_size()))
    assert hvd.is_homogeneous() == (len({ranks for _, _, ranks in nodes}) == 1), nodes
    same = [node for node, local_rank, _ in nodes if local_rank == hvd.local_rank()]
    assert hvd.cross_size() == len(same) and sorted(same)[hvd.cross_rank()] == gradbus.cross_rank(), nodes
    for name in ("mpi_built", "mpi_enabled", "gloo_built", "gloo_enabled", "ddl_built", "ccl_built", "rocm_built"):
        assert getattr(hvd, name)() is False, name
    assert hvd.nccl_built() == 0 and hvd.cuda_built() == (torch.version.cuda is not None)


def case_allreduce():
    mine = tensor_of(hvd.rank())
    expected = {
        hvd.Sum: everyone().sum(0), hvd.Average: everyone().mean(0), hvd.Min: everyone().min(0)[0],
        hvd.Max: everyone().max(0)[0], hvd.Product: everyone().prod(0),
    }  # fmt: skip
    for op, result in expected.items():
        assert torch.allclose(hvd.allreduce(mine, op=op), result), op
        assert torch.allclose(hvd.synchronize(hvd.allreduce_async(mine, op=op)), result), op
        place = mine.clone()
        assert hvd.allreduce_(place, op=op) is place and torch.allclose(place, result), op
        place = mine.clone()
        handle = hvd.allreduce_async_(place, op=op)
        assert hvd.synchronize(handle) is place and torch.allclose(place, result), op
        assert hvd.poll(handle)
        lists = ([mine, 2 * mine[0]], [result, None])
        if op in (hvd.Sum, hvd.Average, hvd.Min, hvd.Max):
            lists[1][1] = 2 * result[0]
            check_group(op, *lists)
    assert torch.equal(mine, tensor_of(hvd.rank()))


def check_group(op, tensors, results):
    def same(found):
        assert len(found) == len(results)
        assert all(torch.allclose(a, b) for a, b in zip(found, results)), (op, found)

    same(hvd.grouped_allreduce(tensors, op=op, name="group"))
    same(hvd.synchronize(hvd.grouped_allreduce_async(tensors, op=op)))
    places = [tensor.clone() for tensor in tensors]
    same(hvd.grouped_allreduce_(places, op=op))
    same(places)
    places = [tensor.clone() for tensor in tensors]
    same(hvd.synchronize(hvd.grouped_allreduce_async_(places, op=op)))
    same(places)


def case_average_and_factors():
    mine, whole = tensor_of(hvd.rank()), everyone()
    assert torch.allclose(hvd.allreduce(mine), whole.mean(0))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        assert torch.allclose(hvd.allreduce(mine, False), whole.sum(0))
        assert torch.allclose(hvd.allreduce(mine, average=True, name="old"), whole.mean(0))
        assert torch.allclose(hvd.grouped_allreduce([mine], False)[0], whole.sum(0))
        assert torch.allclose(hvd.synchronize(hvd.allreduce_async(mine, False, "old")), whole.sum(0))
    assert [one.category for one in found] == [DeprecationWarning] * 4, found
    result = hvd.allreduce(mine, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
    assert torch.allclose(result, 2 * whole.sum(0))


def case_compression():
    mine = tensor_of(hvd.rank()) / 3
    halves = (everyone() / 3).half()
    result = hvd.allreduce(mine, compression=hvd.Compression.fp16, op=hvd.Sum)
    assert result.dtype == torch.float32
    assert torch.allclose(result, halves.float().sum(0), rtol=2e-3), (result, halves)
    assert torch.equal(result, result.half().float())
    whole = tensor_of(hvd.rank(), dtype=torch.int64)
    result_of_integers = hvd.allreduce(whole, compression=hvd.Compression.fp16, op=hvd.Sum)
    assert torch.equal(result_of_integers, everyone(dtype=torch.int64).sum(0))
    (grouped,) = hvd.grouped_allreduce([mine], compression=hvd.Compression.fp16, op=hvd.Sum)
    assert torch.equal(grouped, result)
    parts = hvd.allgather(hvd.reducescatter(mine, compression=hvd.Compression.fp16, op=hvd.Sum))
    assert torch.allclose(parts, result, rtol=2e-3)

    class Doubling:
        @staticmethod
        def compress(tensor):
            return 2 * tensor, "context"

        @staticmethod
        def decompress(tensor, ctx):
            assert ctx == "context"
            return tensor / 2

    assert torch.allclose(hvd.allreduce(mine, compression=Doubling), (everyone() / 3).mean(0))


def case_adasum():
    """Of equal gradients Adasum makes their mean, of orthogonal ones their sum."""
    if hvd.size() != 2:
        return
    assert torch.allclose(hvd.allreduce(torch.full((4,), 3.0), op=hvd.Adasum), torch.full((4,), 3.0))
    ours = torch.zeros(2)
    ours[hvd.rank()] = 5.0
    assert torch.allclose(hvd.allreduce(ours, op=hvd.Adasum), torch.full((2,), 5.0))


def case_sparse():
    """Rank r has row r and row 0."""
    rows = torch.tensor([[0, hvd.rank()]])
    ours = torch.sparse_coo_tensor(rows, torch.ones(2, 3), (hvd.size(), 3))
    dense = torch.ones(hvd.size(), 3)
    dense[0] += hvd.size()
    assert torch.equal(hvd.sparse_allreduce_async(ours, "rows", hvd.Sum)().to_dense(), dense)
    assert torch.allclose(hvd.sparse_allreduce_async(ours, "rows", op=hvd.Average)().to_dense(), dense / hvd.size())
    total = gradbus.allreduce(ours, op=gradbus.Sum, prescale_factor=0.5)
    assert total.is_coalesced() and torch.equal(total.to_dense(), dense / 2)
    empty = torch.sparse_coo_tensor(torch.zeros(1, 0, dtype=torch.int64), torch.zeros(0, 3), (4, 3))
    assert gradbus.allreduce(empty).to_dense().tolist() == [[0] * 3] * 4
    if hvd.size() > 1:
        other = torch.sparse_coo_tensor(rows, torch.ones(2, 3), (hvd.size() + hvd.rank(), 3))
        try:
            gradbus.allreduce(other)
            raise AssertionError("was accepted")
        except gradbus.MismatchError as error:
            assert "GB-O902" in str(error) and f"({hvd.size() + 1}, 3)" in str(error), error


def case_movement():
    rows = [rank + 1 for rank in range(hvd.size())]
    ours = torch.full((rows[hvd.rank()], 2), float(hvd.rank()))
    joined = torch.cat([torch.full((count, 2), float(rank)) for rank, count in enumerate(rows)])
    assert torch.equal(hvd.allgather(ours), joined)
    assert torch.equal(hvd.synchronize(hvd.allgather_async(ours, name="rows of all")), joined)
    group = [ours, ours[:1]]
    for found in (hvd.grouped_allgather(group), hvd.synchronize(hvd.grouped_allgather_async(group))):
        assert torch.equal(found[0], joined) and found[1].shape == (hvd.size(), 2)
    root = hvd.size() - 1
    mine, theirs = tensor_of(hvd.rank()), tensor_of(root)
    assert torch.equal(hvd.broadcast(mine, root), theirs)
    assert torch.equal(hvd.synchronize(hvd.broadcast_async(mine, root_rank=root)), theirs)
    assert torch.equal(mine, tensor_of(hvd.rank()))
    place = mine.clone()
    assert hvd.broadcast_(place, root, name="place") is place and torch.equal(place, theirs)
    assert hvd.synchronize(hvd.broadcast_async_(mine, root)) is mine and torch.equal(mine, theirs)


def case_alltoall():
    """Rank r sends r + 1 rows with its number to each rank."""
    size = hvd.size()
    ours = torch.full((size * (hvd.rank() + 1), 2), float(hvd.rank()))
    splits = torch.full((size,), hvd.rank() + 1, dtype=torch.int32)
    expected = torch.cat([torch.full((rank + 1, 2), float(rank)) for rank in range(size)])
    rows = torch.arange(1, size + 1, dtype=torch.int32)
    for found, received in (hvd.alltoall(ours, splits), hvd.alltoall(ours, splits.tolist()),
                            hvd.synchronize(hvd.alltoall_async(ours, splits))):
        assert torch.equal(found, expected) and torch.equal(received, rows) and received.dtype == torch.int32
    assert hvd.alltoall(ours, splits.long())[1].dtype == torch.int64
    more = torch.cat([ours, torch.full((3, 2), -1.0)]).requires_grad_()  # nobody gets the last rows
    assert torch.equal(hvd.synchronize(hvd.alltoall_async(more.detach(), splits))[0], expected)
    found, _ = hvd.alltoall(more, splits)
    found.sum().backward()
    assert torch.equal(found, expected) and (more.grad[-3:] == 0).all() and (more.grad[:-3] == 1).all()
    equal = torch.full((size, 1), float(hvd.rank()))
    assert torch.equal(hvd.alltoall(equal).flatten(), torch.arange(size).float())
    found, received = hvd.synchronize(hvd.alltoall_async(equal))
    assert torch.equal(found.flatten(), torch.arange(size).float()) and received.tolist() == [1] * size


def my_rows(whole):
    counts = [len(whole) // hvd.size() + (rank < len(whole) % hvd.size()) for rank in range(hvd.size())]
    return whole[sum(counts[: hvd.rank()]) : sum(counts[: hvd.rank() + 1])]


def case_reducescatter():
    mine, whole = tensor_of(hvd.rank(), (5, 2)), everyone((5, 2))
    assert torch.allclose(hvd.reducescatter(mine), my_rows(whole.mean(0)))
    assert torch.allclose(hvd.synchronize(hvd.reducescatter_async(mine, op=hvd.Sum)), my_rows(whole.sum(0)))
    for found in (hvd.grouped_reducescatter([mine, mine + 1], op=hvd.Sum, postscale_factor=2.0),
                  hvd.synchronize(hvd.grouped_reducescatter_async([mine, mine + 1], op=hvd.Sum, prescale_factor=2.0))):
        assert torch.allclose(found[0], 2 * my_rows(whole.sum(0)))
        assert torch.allclose(found[1], 2 * my_rows((whole + 1).sum(0)))


def gradient_of(operation, shape=(6, 2)):
    """Each element of the result has the weight 1 + the rank's number."""
    ours = tensor_of(hvd.rank(), shape).requires_grad_()
    result = operation(ours)
    (result * (hvd.rank() + 1)).sum().backward()
    return ours.grad


def case_gradients():
    """As Horovod's, which differ from the true ones by a factor in some operations."""
    size = hvd.size()
    total = sum(range(1, size + 1))
    weights = torch.tensor([rank + 1.0 for rank in range(size)])
    whole = torch.ones(6, 2)
    counts = [6 // size + (rank < 6 % size) for rank in range(size)]
    by_owner = weights.repeat_interleave(torch.tensor(counts))[:, None] * whole
    cases = [
        (lambda t: hvd.allreduce(t, op=hvd.Sum), total * whole),
        (lambda t: hvd.allreduce(t), total / size * whole),
        (lambda t: hvd.grouped_allreduce([t], op=hvd.Sum)[0], total * whole),
        (lambda t: hvd.allreduce(t, op=hvd.Sum, compression=hvd.Compression.fp16), total * whole),
        (lambda t: hvd.allgather(t), total / size * whole),
        (lambda t: hvd.grouped_allgather([t, t.detach()], name="g")[0], total / size * whole),
        (lambda t: hvd.broadcast(t, 0), (total / size if hvd.rank() == 0 else 0.0) * whole),
        (lambda t: hvd.reducescatter(t), by_owner),
        (lambda t: hvd.reducescatter(t, op=hvd.Sum), size * by_owner),
        (lambda t: hvd.grouped_reducescatter([t], op=hvd.Sum)[0], size * by_owner),
    ]
    for number, (operation, expected) in enumerate(cases):
        found = gradient_of(operation)
        assert torch.allclose(found, expected), (number, found, expected)
    if 6 % size == 0:
        assert torch.allclose(gradient_of(hvd.alltoall), weights.repeat_interleave(6 // size)[:, None] * whole)


def case_objects():
    assert hvd.broadcast_object({"rank": hvd.rank()}, root_rank=0) == {"rank": 0}
    assert hvd.broadcast_object(hvd.rank(), hvd.size() - 1, name="last") == hvd.size() - 1
    assert hvd.allgather_object([hvd.rank()]) == [[rank] for rank in range(hvd.size())]


def case_process_sets():
    everybody = hvd.global_process_set
    assert everybody.ranks == list(range(hvd.size())) and everybody.size() == hvd.size()
    assert everybody.rank() == hvd.rank() and everybody.included()
    if hvd.size() < 3:
        return
    pair = hvd.ProcessSet([2, 0])
    assert pair.ranks == [0, 2] and pair.process_set_id is None
    assert hvd.add_process_set(pair) is pair and pair.process_set_id > 0
    if pair.included():
        mine = tensor_of(hvd.rank())
        both = tensor_of(0) + tensor_of(2)
        assert torch.equal(hvd.allreduce(mine, op=hvd.Sum, process_set=pair), both)
        assert torch.equal(hvd.allgather(torch.tensor([hvd.rank()]), process_set=pair), torch.tensor([0, 2]))
        assert torch.equal(hvd.broadcast(mine, 2, process_set=pair), tensor_of(2))
        assert pair.rank() == hvd.rank() // 2 and pair.size() == 2
        hvd.barrier(process_set=pair)
    assert hvd.remove_process_set(pair) and pair.process_set_id is None
    assert not hvd.remove_process_set(pair) and not hvd.remove_process_set(everybody)
    again = hvd.add_process_set([1, 0])
    assert again.ranks == [0, 1]
    assert hvd.add_process_set(pair).process_set_id == again.process_set_id + 1
    assert str(again) == f"ProcessSet(process_set_id={again.process_set_id}, ranks=[0, 1], mpi_comm=None)"
    number = again.process_set_id
    assert hvd.remove_process_set(again) and hvd.add_process_set([1, 2]).process_set_id == number  # free numbers first
    assert hvd.mpi_ops._basics._get_process_set_ids_and_ranks()[number] == [1, 2]
    assert hvd.remove_process_set(pair)
    with pytest.raises(ValueError, match="all ranks.*hvd.global_process_set"):
        hvd.add_process_set(range(hvd.size()))
    with pytest.raises(ValueError, match="get their numbers when they are added"):
        pair.process_set_id = 10


def case_numbers_of_operations():
    """Those of Horovod."""
    mine = torch.tensor([1.0 + hvd.rank()])
    for number, op in enumerate([hvd.Average, hvd.Sum, None, hvd.Min, hvd.Max, hvd.Product]):
        if op is not None:
            assert hvd.allreduce(mine, op=number) == hvd.allreduce(mine, op=op)


def case_factors_of_zero():
    """Results are zeros, of each form of the operations."""
    for options in ({"prescale_factor": 0.0}, {"postscale_factor": 0}):
        for dtype in (torch.float32, torch.float64, torch.int32):
            given = torch.full((hvd.size(), 2), 3, dtype=dtype)
            results = [hvd.allreduce(given, **options), hvd.reducescatter(given, op=hvd.Sum, **options)]
            results += hvd.grouped_allreduce([given, given.double()], op=hvd.Max, **options)
            results.append(hvd.synchronize(hvd.allreduce_async(given, op=hvd.Sum, **options)))
            assert (given == 3).all()
            results.append(hvd.allreduce_(given, **options))
            assert results[-1] is given and not any(result.any() for result in results), (options, dtype, results)
            assert [result.dtype for result in results] == [dtype, dtype, dtype, torch.float64, dtype, dtype]
    weight = torch.ones(2, requires_grad=True)
    hvd.allreduce(weight, prescale_factor=0.0).sum().backward()
    assert not weight.grad.any()


hvd.init()
hvd.init()
for name, case in list(globals().items()):
    if name.startswith("case_"):
        print(name, flush=True)
        case()
        hvd.barrier()
hvd.shutdown()
assert not hvd.is_initialized()
print("ok")

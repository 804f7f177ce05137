"""Every collective of torch.distributed on gradbus, compared bit by bit with gloo on the same random tensors."""

import random
import time

import gradbus
import torch
import torch.distributed as dist
from torch_group import RANK, SIZE, init

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
COMPLEX = [torch.complex64, torch.complex128]
MOVED = [*FLOATS, *INTEGERS, *COMPLEX, torch.bool]
# Where gloo lacks a dtype; the values are exact in both.
FOR_GLOO = {torch.int16: torch.int64, torch.bfloat16: torch.float32, torch.bool: torch.uint8}
SHAPES = [(), (1,), (7,), (3, 5), (0,), (2, 0, 3), (4, 1, 9), (70001,)]
OPS = [dist.ReduceOp.SUM, dist.ReduceOp.MIN, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT]
BITS = [dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR]


def values(shape, dtype, seed, strided=False):
    """Small whole numbers, whose sums and products are exact in every order."""
    generator = torch.Generator().manual_seed(seed)
    wide = (*shape[:-1], 2 * shape[-1]) if strided and shape else shape
    made = torch.randint(1 if dtype == torch.uint8 else -2, 3, wide, generator=generator)
    if dtype.is_complex:
        made = torch.complex(made.double(), torch.randint(-2, 3, wide, generator=generator).double())
    made = made.to(dtype)
    return made[..., ::2] if strided and shape else made


def same(call, dtype, shape, seed, group, strided=False):
    """``call(tensor, group)`` leaves the same values in its results on both backends."""
    given = values(shape, dtype, seed + RANK, strided)
    plain = given.to(FOR_GLOO.get(dtype, dtype)).clone(memory_format=torch.contiguous_format)  # gloo wants those
    theirs = [tensor.to(dtype) for tensor in call(plain, others[group])]
    ours = call(given, group)
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs):
        assert mine.dtype == other.dtype and mine.shape == other.shape
        assert torch.equal(mine, other), (call, dtype, shape, mine, other)


def waits(work, kind):
    """The ways to wait for a work."""
    if kind == 0:
        assert work.wait()
    elif kind == 1:
        while not work.is_completed():
            time.sleep(0.0005)
        assert work.is_success() and work.exception() is None
    else:
        work.get_future().wait()


def reductions(group, size, draw):
    def allreduce(op):
        def call(tensor, where):
            waits(dist.all_reduce(tensor, op, group=where, async_op=True), draw if where is group else 0)
            return [tensor]

        return call

    def reduce(op, root):
        def call(tensor, where):
            dist.reduce(tensor, group_dst=root, op=op, group=where)
            return [tensor] if dist.get_rank(where) == root else []

        return call

    for dtype in [*FLOATS, *INTEGERS]:
        for op in OPS + (BITS if dtype in INTEGERS else []):
            shape, seed = random.choice(SHAPES), random.randrange(1 << 30)
            same(allreduce(op), dtype, shape, seed, group, strided=bool(seed & 1))
            same(reduce(op, seed % size), dtype, random.choice(SHAPES), seed, group, strided=bool(seed & 2))


def movements(group, size):
    def broadcast(root):
        def call(tensor, where):
            dist.broadcast(tensor, group=where, group_src=root)
            return [tensor]

        return call

    def all_gather(tensor, where):
        out = [torch.zeros_like(tensor) for _ in range(size)]
        dist.all_gather(out, tensor, group=where)
        return out

    def all_gather_into(tensor, where):
        if not tensor.dim():
            tensor = tensor.view(1)
        out = tensor.new_zeros((size * tensor.shape[0], *tensor.shape[1:]))
        dist.all_gather_into_tensor(out, tensor.contiguous(), group=where)
        return [out]

    def gather(root):
        def call(tensor, where):
            is_root = dist.get_rank(where) == root
            out = [torch.zeros_like(tensor) for _ in range(size)] if is_root else None
            dist.gather(tensor.contiguous(), out, group=where, group_dst=root)
            return out or []

        return call

    def scatter(root):
        def call(tensor, where):
            tensor = tensor.contiguous()
            parts = [tensor.clone() if dtype == torch.bool else tensor * i for i in range(size)]
            dist.scatter(tensor, parts if dist.get_rank(where) == root else None, group=where, group_src=root)
            return [tensor]

        return call

    def alltoall(tensor, where):
        out = torch.zeros_like(tensor).repeat_interleave(size, 0)
        dist.all_to_all_single(out, tensor.repeat_interleave(size, 0), group=where)
        return [out]

    for dtype in MOVED:
        seed = random.randrange(1 << 30)
        root = seed % size
        calls = [broadcast(root), all_gather, all_gather_into, alltoall]
        if dtype not in COMPLEX:  # gloo gathers none of these
            calls += [gather(root), scatter(root)]
        for call in calls:
            shape = random.choice(SHAPES[1:] if call is alltoall else SHAPES)
            same(call, dtype, shape, seed, group, strided=call is not alltoall and bool(seed & 1))


def by_formula(group, size, rank):
    """What gloo has not got."""
    for dtype in [*FLOATS, torch.int64, *COMPLEX]:
        rows = values((size * 3, 5), dtype, 7)  # the same on every rank
        out = torch.zeros((3, 5), dtype=dtype)
        dist.reduce_scatter_tensor(out, rows * (rank + 1), group=group)
        total = size * (size + 1) // 2
        assert torch.equal(out, rows[3 * rank : 3 * rank + 3] * total)
        parts = list(rows.clone().chunk(size))
        dist.reduce_scatter(out, parts, group=group)
        assert torch.equal(out, rows[3 * rank : 3 * rank + 3] * size)
    mean = torch.full((5,), float(rank))
    dist.all_reduce(mean, dist.ReduceOp.AVG, group=group)
    assert torch.equal(mean, torch.full((5,), (size - 1) / 2))
    truth = torch.tensor([rank == 0, True, False])
    dist.all_reduce(truth, group=group)
    assert truth.tolist() == [True, True, False]
    xor = torch.tensor([rank + 1, 6])
    scattered = torch.zeros(1, dtype=torch.int64)
    dist.reduce_scatter_tensor(scattered, xor.repeat(size)[:size].contiguous(), dist.ReduceOp.BXOR, group=group)
    expected = [0, 0]
    for each in range(size):
        expected = [expected[0] ^ (each + 1), expected[1] ^ 6]
    assert scattered.item() == expected[rank % 2], (scattered, expected)


def sparse(group, size, rank):
    """Rank r has rows 0 and r, the last rank none."""
    rows = [0, rank] if rank < size - 1 else []
    for op, divisor in ((dist.ReduceOp.SUM, 1), (dist.ReduceOp.AVG, size)):
        mine = torch.sparse_coo_tensor([rows], torch.ones(len(rows), 2), (size, 2))
        dist.all_reduce(mine, op, group=group)
        expected = torch.zeros(size, 2)
        expected[: size - 1] = 1.0
        expected[0] += size - 1
        assert mine.is_sparse and torch.equal(mine.to_dense(), expected / divisor)


def splits(group, size, rank):
    """Rank r sends r + s + 1 rows to rank s, and rank 0 nothing to itself."""

    def rows(source, target):
        return 0 if source == target == 0 else source + target + 1

    send = [rows(rank, to) for to in range(size)]
    receive = [rows(source, rank) for source in range(size)]
    data = torch.cat([torch.full((count, 2), 100.0 * rank + to) for to, count in enumerate(send)])
    out = torch.zeros(sum(receive), 2)
    dist.all_to_all_single(out, data, receive, send, group=group)
    expected = [torch.full((count, 2), 100.0 * source + rank) for source, count in enumerate(receive)]
    assert torch.equal(out, torch.cat(expected))
    listed = [torch.zeros(count, 2) for count in receive]
    dist.all_to_all(listed, list(data.split(send)), group=group)
    assert all(torch.equal(one, other) for one, other in zip(listed, expected))


def coalesced(group, size, rank):
    with dist._coalescing_manager(group, async_ops=True) as manager:
        tensors = [torch.full((4,), float(rank + i)) for i in range(3)]
        for tensor in tensors:
            dist.all_reduce(tensor, group=group)
    manager.wait()
    assert [tensor[0].item() for tensor in tensors] == [sum(range(i, size + i)) for i in range(3)]
    outs = [torch.zeros(2 * size), torch.zeros(3 * size, dtype=torch.int32)]
    ins = [torch.full((2,), float(rank)), torch.full((3,), rank, dtype=torch.int32)]
    where = group or dist.group.WORLD
    where.allgather_into_tensor_coalesced(outs, ins).wait()
    assert outs[1].tolist() == [r for r in range(size) for _ in range(3)]
    where.reduce_scatter_tensor_coalesced(ins, outs).wait()
    assert ins[0].tolist() == [rank * size] * 2


def objects(group, size, rank):
    everything = [None] * size
    dist.all_gather_object(everything, {"rank": rank, "text": "x" * rank * 1000}, group=group)
    assert [one["rank"] for one in everything] == list(range(size))
    said = [rank, "from the first"] if rank == 0 else [None, None]
    dist.broadcast_object_list(said, group_src=0, group=group)
    assert said == [0, "from the first"]


def shared_memory():
    """Bytes that this process maps of other processes' memory."""
    with open("/proc/self/maps") as lines:
        spans = [line.split()[0].split("-") for line in lines if "memfd:" in line]
    return sum(int(end, 16) - int(first, 16) for first, end in spans)


def sizes(group, size, rank):
    """Gathers of other sizes use the memory of those before."""
    root = group_root(group, size - 1)
    before = shared_memory()
    for count in range(200_000, 220_000, 1000):
        tensor = torch.full((count,), float(rank))
        whole = [torch.zeros(count) for _ in range(size)]
        dist.all_gather(whole, tensor, group=group)
        flat = torch.zeros(size * count)
        dist.all_gather_into_tensor(flat, tensor, group=group)
        assert whole[-1].eq(size - 1).all() and flat.equal(torch.cat(whole))
        dist.gather(tensor, whole if rank == size - 1 else None, dst=root, group=group)
    block = size * (1 << 18) * 4
    assert shared_memory() - before <= 4 * block, (before, shared_memory(), block)


def group_root(group, rank):
    """The number of a member in the whole job."""
    return rank if group is None else dist.get_global_rank(group, rank)


def empty(group, size, rank):
    """A gather of nothing into one tensor."""
    where = group or dist.group.WORLD
    options = dist.GatherOptions()
    options.rootRank = 0
    where.gather_single(torch.empty(size, 0), torch.empty(0), options).wait()


def outputs(group, size):
    """Autograd hears of what is written, as with gloo. Where elements share memory, nothing is sent."""
    assert writes_are_counted(group, size) == writes_are_counted(others[group], size) == [True, True]
    shared = torch.zeros(1).expand(4)
    for call in (
        lambda: dist.all_reduce(shared, group=group),
        lambda: dist.broadcast(shared, group=group, group_src=0),
        lambda: dist.all_gather_into_tensor(torch.zeros(1).expand(4 * size), torch.ones(4), group=group),
    ):
        try:
            call()
        except gradbus.InvalidError as error:
            assert "share memory" in str(error) and "clone()" in str(error), error
        else:
            raise AssertionError("no error")


def writes_are_counted(group, size):
    whole, part = torch.zeros(2 * size), torch.zeros(2)
    dist.all_gather_into_tensor(whole, torch.ones(2), group=group)
    dist.reduce_scatter_tensor(part, torch.ones(2 * size), group=group)
    return [whole._version > 0, part._version > 0]


def messages(group, size, rank):
    """Round a ring: tags, sizes, dtypes, both directions at once."""
    after, before = (rank + 1) % size, (rank - 1) % size
    sent = [torch.full((3,), float(rank)), torch.tensor(rank, dtype=torch.int16), torch.empty(0), torch.arange(300000)]
    got = [torch.zeros_like(tensor) for tensor in sent]
    receives = [
        dist.irecv(got[tag], group=group, group_src=before, tag=tag) for tag in (2, 0, 3, 1)
    ]
    sends = [dist.isend(tensor, group=group, group_dst=after, tag=tag) for tag, tensor in enumerate(sent)]
    for work in [*sends, *receives]:
        work.wait()
    assert got[0].tolist() == [before] * 3 and got[1].item() == before and torch.equal(got[3], sent[3])
    back, forth = torch.zeros(2, 2), torch.eye(2).t() * rank
    both = [
        dist.P2POp(dist.isend, forth, group=group, group_peer=before),
        dist.P2POp(dist.irecv, back, group=group, group_peer=after),
    ]
    for work in dist.batch_isend_irecv(both):
        work.wait()
    assert torch.equal(back, torch.eye(2) * after)


def everything(group):
    random.seed(20)  # the same order on every member
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    for kind in range(3):
        reductions(group, size, kind)
    movements(group, size)
    by_formula(group, size, rank)
    sparse(group, size, rank)
    splits(group, size, rank)
    coalesced(group, size, rank)
    objects(group, size, rank)
    sizes(group, size, rank)
    empty(group, size, rank)
    outputs(group, size)
    if size > 1:
        messages(group, size, rank)
    dist.barrier(group)
    dist.monitored_barrier(group) if group is None else group.monitored_barrier()


init()
others = {None: dist.new_group(backend="gloo")}
everything(None)
if SIZE > 2:  # groups that overlap
    for ranks in ([0, 2], [1, 2]):
        group, others_group = dist.new_group(ranks), dist.new_group(ranks, backend="gloo")
        if RANK in ranks:
            others[group] = others_group
            everything(group)
if SIZE > 2:  # a group whose start the other ranks do not see
    if RANK != 1:
        total = torch.ones(2)
        dist.all_reduce(total, group=dist.new_group([0, 2], use_local_synchronization=True))
        assert total.tolist() == [2, 2]
dist.destroy_process_group()
init(part="again")
total = torch.ones(3)
dist.all_reduce(total)
assert total.tolist() == [SIZE] * 3
dist.destroy_process_group()
print("ok")

"""A rank: gradients through collectives equal those of one process that computes all ranks' part."""

import sys

import gradbus
import torch

RANK, SIZE = 0, 1


def inputs(rows, dtype=torch.float64):
    """All ranks' tensors, each with `rows[rank]` rows."""
    torch.manual_seed(3)
    return [torch.randn(count, 3, dtype=dtype).requires_grad_() for count in rows]


def weights(result, rank):
    """What the loss of a rank multiplies its result by."""
    generator = torch.Generator().manual_seed(100 + rank)
    real = torch.randn(result.shape, generator=generator, dtype=torch.float64)
    return real if not result.is_complex() else torch.complex(real, real + 1)


def loss_of(result, rank):
    product = result * weights(result, rank)
    return (product.real + product.imag if product.is_complex() else product).sum()


def compare(name, rows, distributed, alone, dtype=torch.float64):
    """`distributed(x)` is this rank's result; `alone(xs)` all ranks', in one process."""
    every = inputs(rows, dtype)
    mine = every[RANK].detach().clone().requires_grad_()
    result = distributed(mine)
    wanted = alone(every)
    assert torch.allclose(result, wanted[RANK]), name
    loss_of(result, RANK).backward()
    sum(loss_of(part, rank) for rank, part in enumerate(wanted)).backward()
    want = every[RANK].grad
    want = torch.zeros_like(mine) if want is None else want
    assert torch.allclose(mine.grad, want), (name, mine.grad, want)


def shards(whole):
    """As a reduce-scatter cuts them."""
    count = len(whole)
    return torch.split(whole, [count // SIZE + (rank < count % SIZE) for rank in range(SIZE)])


def every_collective():
    same = [4] * SIZE
    uneven = [2 * rank for rank in range(SIZE)]
    root = SIZE - 1
    g = gradbus
    compare("sum", same, lambda x: g.allreduce(x, op=g.Sum), lambda xs: [sum(xs)] * SIZE)
    compare("named", same, lambda x: g.allreduce(x, "n"), lambda xs: [sum(xs) / SIZE] * SIZE)
    compare(
        "scaled", same, lambda x: g.allreduce(x, op=g.Sum, prescale_factor=2.0, postscale_factor=0.25),
        lambda xs: [sum(xs) / 2] * SIZE,
    )  # fmt: skip
    compare(
        "complex", same, lambda x: g.allreduce(x, op=g.Sum), lambda xs: [sum(xs)] * SIZE, torch.complex128
    )
    compare("strided", same, lambda x: g.allreduce(x.t(), op=g.Sum), lambda xs: [sum(xs).t()] * SIZE)
    compare("broadcast", same, lambda x: g.broadcast(x, root), lambda xs: [xs[root] * 1] * SIZE)
    for rows in (same, uneven, [5] + [1] * (SIZE - 1)):
        compare("allgather", rows, lambda x: g.allgather(x), lambda xs: [torch.cat(xs)] * SIZE)
    compare(
        "reducescatter", [SIZE + 1] * SIZE, lambda x: g.reducescatter(x, op=g.Sum), lambda xs: shards(sum(xs))
    )
    compare(
        "mean shard", [SIZE + 1] * SIZE, lambda x: g.reducescatter(x), lambda xs: shards(sum(xs) / SIZE)
    )


def to_the_root():
    """Of reduce() and gather(), the others have zeros and no rows, through which they run backward."""
    g, root = gradbus, SIZE - 1
    for rows in ([4] * SIZE, [2 * rank for rank in range(SIZE)], [5] + [1] * (SIZE - 1)):
        compare(
            f"gather {rows}", rows, lambda x: g.gather(x, root, "g"),
            lambda xs: [torch.cat(xs) if rank == root else xs[0][:0] for rank in range(SIZE)],
        )  # fmt: skip
    for op, factor in ((g.Sum, 2.0), (g.Average, 2.0 / SIZE)):
        compare(
            f"reduce {op}", [4] * SIZE, lambda x, op=op: g.reduce(x, root, op=op, prescale_factor=2.0),
            lambda xs, factor=factor: [sum(xs) * (factor if rank == root else 0) for rank in range(SIZE)],
        )  # fmt: skip
    assert g.reduce(torch.ones(2), root) is None or RANK == root


def from_the_root():
    """The others' tensors tell scatter() the shape alone."""
    root = SIZE - 1
    rows = [2 * SIZE if rank == root else 2 for rank in range(SIZE)]
    compare(
        "scatter", rows, lambda x: gradbus.scatter(x, root),
        lambda xs: [xs[root][2 * rank : 2 * rank + 2] for rank in range(SIZE)],
    )  # fmt: skip


def groups():
    """Two tensors that need a gradient, and one of integers between them, in one operation."""
    count, number = SIZE + 1, torch.arange(SIZE)

    def joined(x):
        first, none, second = gradbus.grouped_allgather([x, number, x[:1] * 2], "two")
        assert not none.requires_grad and len(none) == SIZE * SIZE
        return torch.cat([first, second])

    for rows in ([count] * SIZE, [1 + 2 * rank for rank in range(SIZE)]):
        compare(
            f"allgathers {rows}", rows, joined, lambda xs: [torch.cat([*xs, *[x[:1] * 2 for x in xs]])] * SIZE
        )

    def cut(x):
        first, none, second = gradbus.grouped_reducescatter([x, number, x * x], op=gradbus.Sum)
        assert not none.requires_grad and none.tolist() == [RANK * SIZE]
        return torch.cat([first, second])

    compare(
        "reduce-scatters", [count] * SIZE, cut,
        lambda xs: [torch.cat(both) for both in zip(shards(sum(xs)), shards(sum(x * x for x in xs)))],
    )  # fmt: skip


def moved(xs, splits):
    """All-to-all in one process; ``splits[source][target]``."""
    parts = [torch.split(x, counts) for x, counts in zip(xs, splits)]
    return [torch.cat([part[target] for part in parts]) for target in range(SIZE)]


def all_to_all():
    equal = [[2] * SIZE] * SIZE
    compare("alltoall", [2 * SIZE] * SIZE, gradbus.alltoall, lambda xs: moved(xs, equal))
    splits = [[(source + target) % 3 for target in range(SIZE)] for source in range(SIZE)]
    rows = [sum(counts) for counts in splits]
    compare(
        "splits", rows, lambda x: gradbus.alltoall(x, splits[RANK], "a")[0], lambda xs: moved(xs, splits)
    )


def others():
    """Groups, second derivatives, no gradient where none is wanted, and operations without one."""
    x = torch.full((2,), 1.0 + RANK, requires_grad=True)
    half, count = gradbus.grouped_allreduce([x, torch.tensor([RANK])], op=gradbus.Sum)
    (half * (RANK + 1)).sum().backward()
    assert x.grad.tolist() == [SIZE * (SIZE + 1) / 2] * 2 and not count.requires_grad
    cube = torch.tensor([2.0], requires_grad=True)
    (first,) = torch.autograd.grad(gradbus.allreduce(cube**3), cube, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), cube)
    assert first.item() == 12 and second.item() == 12
    with torch.no_grad():
        assert not gradbus.allreduce(x).requires_grad
    assert not gradbus.allreduce(x.detach()).requires_grad
    largest = gradbus.allreduce(x, op=gradbus.Max)
    assert largest.tolist() == [SIZE, SIZE]
    refused(largest.sum().backward, "Max has no gradient")
    (third,) = torch.autograd.grad(gradbus.broadcast(cube**3, 0).sum(), cube, create_graph=True)
    (fourth,) = torch.autograd.grad(third.sum(), cube)
    assert fourth.item() == (12 * SIZE if RANK == 0 else 0), fourth


def refused(call, *words):
    try:
        call()
    except gradbus.InvalidError as error:
        assert [word for word in words if word not in str(error)] == [], error
    else:
        raise AssertionError(f"no error with {words}")


def handles():
    """Results that autograd cannot follow raise where a backward pass reaches them, and are numbers until then."""
    g = gradbus
    forms = {
        "allreduce": lambda x: g.allreduce_async(x, "n", op=g.Sum),
        "grouped_allreduce": lambda x: g.grouped_allreduce_async([x]),
        "broadcast": lambda x: g.broadcast_async(x),
        "allgather": lambda x: g.allgather_async(x),
        "alltoall": lambda x: g.alltoall_async(x, [1] * SIZE),
        "reducescatter": lambda x: g.reducescatter_async(x),
        "reduce": lambda x: g.reduce_async(x, 0),
        "gather": lambda x: g.gather_async(x, 0),
        "scatter": lambda x: g.scatter_async(x if RANK == 0 else x[:1], 0),
    }
    for verb, start in forms.items():
        x = torch.ones(SIZE, 3, requires_grad=True)
        handle = start(x)
        with torch.no_grad():
            result = g.synchronize(handle)
        result = result[0] if isinstance(result, (tuple, list)) else result
        if result is not None:
            refused((result.sum() + x.sum()).backward, f"{verb}: the tensor" if verb != "allreduce" else "tensor 'n'",
                    "no gradient", f"call gradbus.{verb}()", ".detach()")
        assert result is not None or RANK > 0
        with torch.no_grad():
            given = g.synchronize(start(x))
        given = given[0] if isinstance(given, (tuple, list)) else given
        assert given is None or not given.requires_grad, verb


def in_place():
    """A parameter gets other values; a tensor with a history does not keep that."""
    for call in (gradbus.allreduce_, gradbus.broadcast_, lambda x: gradbus.grouped_allreduce_([x])[0],
                 lambda x: gradbus.synchronize(gradbus.allreduce_async_(x)),
                 lambda x: gradbus.synchronize(gradbus.broadcast_async_(x))):
        x = torch.full((2,), 1.0 + RANK, requires_grad=True)
        assert call(x) is x and x.is_leaf
        call(x[:1])
        (x * 3).sum().backward()
        assert x.grad.tolist() == [3, 3]
        loss = x * 2
        assert call(loss) is loss and loss.tolist() == [2 * value for value in x.tolist()]
        refused((loss.sum() + x.sum()).backward, "no gradient", ".detach()")
        with torch.no_grad():
            call(x * 2)
        gradient = torch.autograd.grad((x**3).sum(), x, create_graph=True)[0]
        refused(call(gradient).sum().backward, "no gradient")


def training():
    """A loss over all ranks' activations (as contrastive losses have): as one process computes it."""
    torch.manual_seed(7)
    layer = torch.nn.Linear(3, 2).double()
    data = torch.randn(SIZE * 4, 3, dtype=torch.float64)
    whole = layer(data)
    (want,) = torch.autograd.grad((whole @ whole.t()).square().mean(), layer.weight)
    own = layer(data[RANK * 4 : RANK * 4 + 4])
    activations = gradbus.allgather(own)
    (activations @ activations.t()).square().mean().backward()
    mean = gradbus.allreduce(layer.weight.grad)
    assert torch.allclose(mean, want), (mean, want)


gradbus.init()
RANK, SIZE = gradbus.rank(), gradbus.size()
globals()[sys.argv[1]]()
gradbus.barrier()
print("ok")

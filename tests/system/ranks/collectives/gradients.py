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
    try:
        largest.sum().backward()
    except gradbus.InvalidError as error:
        assert "Max has no gradient" in str(error), error
    else:
        raise AssertionError("no error")


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

"""Sparse gradients of an embedding, as one rank sees them.

    sparse.py training OPTIMIZER MODE   against torch in one process on all ranks' batches
    sparse.py counting MODE             small integers: every gradient counts once, idle ranks too
    sparse.py unannounced MODE          made dense, with a warning; without where others step
    sparse.py large MODE STEPS          steps that use 256 of 100,000 rows; waits to be ended
"""

import copy
import sys
import time
import warnings

import gradbus.torch as gradbus
import torch

ROWS, COLUMNS = 60, 16
STEPS = 6
BATCH, WORDS = 4, 5  # of each rank
TORCH_1 = torch.__version__.startswith("1.")  # its SparseAdam fails where there are no rows
TABLES = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.5),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05),
    "adam": lambda p: torch.optim.SparseAdam(list(p), lr=0.05),
}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(ROWS, COLUMNS, sparse=True)
        self.head = torch.nn.Linear(COLUMNS, 3)

    def forward(self, words):
        return self.head(self.table(words).mean(1))


def batches():
    """(words, targets) of all ranks, of each step; a word comes several times."""
    random = torch.Generator().manual_seed(5)
    count = BATCH * gradbus.size()
    return [
        (torch.randint(0, ROWS, (count, WORDS), generator=random),
         torch.randint(0, 3, (count,), generator=random))
        for _ in range(STEPS)
    ]  # fmt: skip


def backward(model, words, targets):
    torch.nn.functional.cross_entropy(model(words), targets).backward()


def wrap(kind, model, mode):
    optimizers = TABLES[kind](model.table.parameters()), torch.optim.SGD(model.head.parameters(), 0.1)
    announced = [] if kind == "adam" else [model.table.weight]  # a SparseAdam says so itself
    return [
        gradbus.DistributedOptimizer(
            optimizers[0], [("table", model.table.weight)], mode=mode, sparse_parameters=announced
        ),
        gradbus.DistributedOptimizer(optimizers[1], model.head.named_parameters(), mode=mode),
    ]


def alone(kind, model, delay):
    """The steps that one process makes on all batches, each with the gradients of `delay` steps ago."""
    optimizers = TABLES[kind](model.table.parameters()), torch.optim.SGD(model.head.parameters(), 0.1)
    zeros = [torch.zeros_like(p) for p in model.parameters()]
    zeros[0] = zeros[0].to_sparse(1)
    under_way = [zeros] * delay
    for batch in [*batches(), *[None] * delay]:
        model.zero_grad(set_to_none=True)
        if batch is not None:
            backward(model, *batch)
            under_way.append([p.grad for p in model.parameters()])
        for parameter, gradient in zip(model.parameters(), under_way.pop(0)):
            empty = gradient.is_sparse and gradient._nnz() == 0
            parameter.grad = None if empty and TORCH_1 else gradient
        for optimizer in optimizers:
            optimizer.step()


def training(kind, mode):
    torch.manual_seed(0)
    model = Model()
    reference = copy.deepcopy(model)
    optimizers = wrap(kind, model, mode)
    mine = slice(gradbus.rank() * BATCH, (gradbus.rank() + 1) * BATCH)
    for words, targets in batches():
        for optimizer in optimizers:
            optimizer.zero_grad()
        backward(model, words[mine], targets[mine])
        for optimizer in optimizers:
            optimizer.synchronize()
        gradient = model.table.weight.grad
        if gradient is None:  # there are no rows
            assert TORCH_1 and mode == "delayed:k=1"
        else:
            assert gradient.is_sparse and gradient.is_coalesced()
        if mode != "delayed:k=1":
            assert torch.equal(gradient.indices()[0], words.unique()), "the rows of all ranks"
        for optimizer in optimizers:
            optimizer.step()
    for optimizer in optimizers:
        optimizer.flush()
    alone(kind, reference, 1 if mode == "delayed:k=1" else 0)
    for ours, theirs in zip(model.parameters(), reference.parameters()):
        worst = (ours - theirs).abs().max().item()
        assert worst < 1e-4, (kind, mode, worst)
    everywhere = gradbus.allgather_object(model.table.weight.detach().numpy().tobytes())
    assert len(set(everywhere)) == 1


def counting(mode):
    """Rank r adds its rows, of zeros and one sign, in two backward passes; rank 1 uses none in step
    2. Counted dense."""
    table = torch.nn.Embedding(ROWS, COLUMNS, sparse=True)
    torch.nn.init.zeros_(table.weight)
    optimizer = gradbus.DistributedOptimizer(
        torch.optim.SGD(table.parameters(), lr=1.0), [("table", table.weight)], mode=mode,
        op=gradbus.Sum, backward_passes_per_step=2, sparse_parameters=[table.weight],
    )  # fmt: skip
    wanted = torch.zeros(ROWS, COLUMNS)
    for step in range(5):
        optimizer.zero_grad()
        for each in range(gradbus.size()):
            words = torch.tensor([7 * each + step, 7 * each + step, 3 * step + 1]) % ROWS
            if each == 1 and step == 2:
                continue
            for scale in (1.0, 2.0) if step % 2 else (-1.0, -2.0):
                if each == gradbus.rank():
                    (scale * table(words)[:, 1:]).sum().backward()
                wanted[:, 1:].index_add_(0, words, torch.full((3, COLUMNS - 1), -scale))
        optimizer.step()
    optimizer.flush()
    assert torch.equal(table.weight.detach(), wanted)
    state = optimizer.compression_state()
    remembered = [part for name, part in state.items() if name != "rounds"]
    assert not any(share.any() for part in remembered for share in part.values())


def unannounced(mode):
    table = torch.nn.Embedding(ROWS, COLUMNS, sparse=True)
    torch.nn.init.zeros_(table.weight)
    optimizer = gradbus.DistributedOptimizer(
        torch.optim.SGD(table.parameters(), lr=1.0), [("table", table.weight)], mode=mode
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            optimizer.zero_grad()
            table(torch.tensor([3, 3, gradbus.rank()])).sum().backward()
            optimizer.step()
    steps_by_shards = mode.startswith("ps:") and mode != "ps:sync"
    ours = [str(w.message) for w in caught if "gradbus" in w.filename or "sparse" in str(w.message)]
    assert len(ours) == (mode == "sync"), ours
    assert all("'table'" in text and "sparse_parameters" in text for text in ours)
    optimizer.flush()
    if not steps_by_shards:
        wanted = torch.zeros(ROWS, COLUMNS)
        wanted[3] = -6.0
        for rank in range(gradbus.size()):
            wanted[rank] -= 3.0 / gradbus.size()
        assert torch.allclose(table.weight.detach(), wanted)
    else:  # every node's gradient is a step; both ranks' rows have moved, no other one has
        moved = table.weight.detach().any(1).nonzero().flatten().tolist()
        assert moved == sorted({3, *range(gradbus.size())}), moved


def large(mode, steps):
    table = torch.nn.Embedding(100_000, 64, sparse=True)
    optimizer = gradbus.DistributedOptimizer(
        torch.optim.SGD(table.parameters(), lr=1.0), [("table", table.weight)], mode=mode,
        sparse_parameters=[table.weight],
    )  # fmt: skip
    random = torch.Generator().manual_seed(gradbus.rank())
    for _ in range(int(steps)):
        words = torch.randperm(100_000, generator=random)[:256]
        optimizer.zero_grad()
        table(words).sum().backward()
        optimizer.step()
        # Rows that two ranks have drawn are one row.
        assert table.weight.grad._nnz() <= 256 * gradbus.size()
    print("stepped", flush=True)
    time.sleep(600)


def main():
    gradbus.init()
    {"training": training, "counting": counting, "unannounced": unannounced, "large": large}[
        sys.argv[1]
    ](*sys.argv[2:])
    gradbus.shutdown()
    print("ok")


if __name__ == "__main__":
    main()

"""A rank: complex parameters in every way of exchange, against one process on the global batch.

Both parts count: a model whose gradients are purely imaginary would not move if only real parts travelled.
"""

import copy
import sys

import gradbus.torch as gradbus
import torch

BATCH = 6


class Model(torch.nn.Module):
    """Fourier-like layers: complex weights of both precisions between real ones, of odd sizes."""

    def __init__(self, double):
        super().__init__()
        dtype = torch.complex128 if double else torch.complex64
        self.first = torch.nn.Linear(5, 7)
        self.spectral = torch.nn.Parameter(torch.randn(7, 9, dtype=dtype) * 0.3)
        self.phase = torch.nn.Parameter(torch.randn(9, dtype=dtype))
        self.scale = torch.nn.Parameter(torch.randn((), dtype=dtype))
        self.last = torch.nn.Linear(18, 3)

    def forward(self, x):
        spectrum = torch.tanh(self.first(x)).to(self.spectral.dtype) @ self.spectral
        spectrum = spectrum * torch.exp(1j * self.phase) * self.scale
        return self.last(torch.view_as_real(spectrum).flatten(1).float())


def pair(double=False):
    torch.manual_seed(5)
    alone = Model(double)
    return copy.deepcopy(alone), alone


def batches(steps=6):
    random = torch.Generator().manual_seed(11)
    count = BATCH * gradbus.size()
    return [
        (torch.randn(count, 5, generator=random), torch.randint(0, 3, (count,), generator=random))
        for _ in range(steps)
    ]


def mine(tensor):
    return tensor[gradbus.rank() * BATCH : (gradbus.rank() + 1) * BATCH]


def step(optimizer, model, x, y):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()


def assert_same(ours, alone, before, tolerance=2e-5):
    for (name, a), b, start in zip(ours.named_parameters(), alone.parameters(), before):
        assert torch.allclose(a, b, atol=tolerance, rtol=tolerance), (name, (a - b).abs().max())
        if a.is_complex():
            moved = torch.view_as_real((a - start).detach()).abs().amax(tuple(range(a.dim())))
            assert (moved > 1e-4).all(), (name, "one part did not move", moved)
        assert torch.equal(gradbus.broadcast(torch.view_as_real(a) if a.is_complex() else a, 0),
                           torch.view_as_real(a) if a.is_complex() else a), name  # fmt: skip


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def train(make, double=False, tolerance=2e-5, steps=6, **options):
    ours, alone = pair(double)
    before = [p.detach().clone() for p in alone.parameters()]
    optimizer = gradbus.DistributedOptimizer(make(ours.parameters()), ours.named_parameters(), **options)
    reference = make(alone.parameters())
    for x, y in batches(steps):
        step(optimizer, ours, mine(x), mine(y))
        step(reference, alone, x, y)
    optimizer.flush()
    assert_same(ours, alone, before, tolerance)


def case_optimizers():
    for double in (False, True):
        train(sgd, double)
        train(lambda parameters: torch.optim.Adam(parameters, lr=0.01, eps=1e-3), double)
    train(sgd, bucket_bytes=64)


def case_sum_of_imaginary_parts():
    """The gradient of each rank is i * (rank + 1), exactly."""
    for dtype in (torch.complex64, torch.complex128):
        weight = torch.nn.Parameter(torch.zeros(3, dtype=dtype))
        optimizer = gradbus.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), op=gradbus.Sum)
        for _ in range(2):
            optimizer.zero_grad()
            (weight.imag * (gradbus.rank() + 1.0)).sum().backward()
            optimizer.step()
        total = sum(range(1, gradbus.size() + 1))
        assert torch.equal(weight.detach(), torch.full((3,), -2j * total, dtype=dtype)), weight


def case_compressed():
    """A codec that loses little; on one node nothing is compressed."""
    for compression in ("fp16", "int8"):
        weight = torch.nn.Parameter(torch.zeros(160, 161, dtype=torch.complex64))
        odd = torch.nn.Parameter(torch.zeros(161, 161))  # so that pairs would begin at an odd place
        optimizer = gradbus.DistributedOptimizer(
            torch.optim.SGD([weight, odd], lr=1.0), compression=compression
        )
        (weight.real * (gradbus.rank() + 1.0) - weight.imag * 2.0 + odd[0, 0]).sum().backward()
        optimizer.step()
        mean = (gradbus.size() + 1) / 2
        wanted = torch.complex(torch.tensor(-mean), torch.tensor(2.0))
        assert torch.allclose(weight.detach(), wanted.expand_as(weight), rtol=0.02), weight
        state = optimizer.compression_state()
        optimizer.load_compression_state(state)


def case_modes():
    """One step of each is what one process does; localsgd, diloco, averaging: with plain SGD and H=1."""

    def plain(parameters):
        return torch.optim.SGD(parameters, lr=0.1)

    train(plain, mode="localsgd:H=1")
    train(plain, mode="diloco:H=1,outer_lr=1,outer_momentum=0")
    weight = torch.nn.Parameter(torch.zeros(3, dtype=torch.complex64))
    for mode in ("delayed:k=1", "delayed:k=1,dc=0.1", "delayed:k=1,dc=0.1,dc_decay=0.9", "averaging:every=1"):
        weight = torch.nn.Parameter(torch.zeros(3, dtype=torch.complex64))
        optimizer = gradbus.DistributedOptimizer(torch.optim.SGD([weight], lr=0.5), mode=mode)
        for _ in range(3):
            optimizer.zero_grad()
            (weight.imag * (2 * gradbus.rank() + 1.0) - weight.real).sum().backward()
            optimizer.step()
        optimizer.flush()
        if "dc" not in mode:
            wanted = torch.full((3,), complex(1.5, -1.5 * gradbus.size()))
            assert torch.allclose(weight.detach(), wanted), (mode, weight)
        state = optimizer.outer_state()
        optimizer.load_outer_state(state)
        assert torch.equal(gradbus.broadcast(torch.view_as_real(weight), 0), torch.view_as_real(weight)), mode


def case_sparse():
    """Torch's embeddings have no complex gradients, so these are made by hand."""
    table = torch.nn.Parameter(torch.zeros(64, 3, dtype=torch.complex64))
    optimizer = gradbus.DistributedOptimizer(torch.optim.SGD([table], lr=1.0), sparse_parameters=[table])
    for _ in range(2):
        optimizer.zero_grad()
        rows = torch.tensor([gradbus.rank(), 40])
        values = torch.full((2, 3), complex(-1, 2))
        table.grad = torch.sparse_coo_tensor(rows.unsqueeze(0), values, table.shape)
        optimizer.step()
    size = gradbus.size()
    one = complex(2.0, -4.0) / size
    assert torch.allclose(table[gradbus.rank()], torch.full((3,), one)), table[gradbus.rank()]
    assert torch.allclose(table[40], torch.full((3,), one * size)), table[40]
    assert not table[50].abs().any()


def case_state_is_broadcast():
    ours, _ = pair()
    if gradbus.rank() == 0:
        with torch.no_grad():
            for parameter in ours.parameters():
                parameter.add_(1j if parameter.is_complex() else 1)
    optimizer = torch.optim.Adam(ours.parameters())
    if gradbus.rank() == 0:
        step(optimizer, ours, *[t[:BATCH] for t in batches()[0]])
    gradbus.broadcast_parameters(ours)
    gradbus.broadcast_optimizer_state(optimizer)
    for parameter in ours.parameters():
        for value in (parameter, optimizer.state[parameter]["exp_avg"]):
            bits = torch.view_as_real(value.detach()) if value.is_complex() else value.detach()
            assert torch.equal(gradbus.broadcast(bits, 0), bits)


def main():
    torch.set_num_threads(1)
    gradbus.init()
    for name, case in sorted(globals().items()):
        if name.startswith("case_") and all(word in name for word in sys.argv[1:]):
            case()
            print(name, flush=True)
    gradbus.shutdown()
    print("ok")


if __name__ == "__main__":
    main()

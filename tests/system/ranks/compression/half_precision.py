"""Gradients of half precision, exchanged as float32: half_precision.py CASE DTYPE.

Two models have the same gradients, one in float32 and one in half precision. What the second one gets is what the
first one gets, rounded once. Prints the number of rounds that were compared.
"""

import sys

import gradbus.torch as gradbus
import torch

CASES = {
    "reduce": dict(reduce_dtype=torch.float32),
    "topk": dict(compression="topk:ratio=0.05"),
    "efsignsgd": dict(compression="efsignsgd"),
    "delayed": dict(compression="topk:ratio=0.05", mode="delayed:k=1"),
    "own": {},
}
SHAPE = (256, 128)  # large enough to be compressed
ROUNDS = 4

gradbus.init()
case, dtype = sys.argv[1], getattr(torch, sys.argv[2])


def model_of(dtype):
    torch.manual_seed(1)
    return torch.nn.Parameter(torch.randn(SHAPE).to(torch.bfloat16).to(dtype))


def optimizer_of(parameter, name, **arguments):
    sgd = torch.optim.SGD([parameter], lr=0.0)
    return gradbus.DistributedOptimizer(sgd, named_parameters=[(name, parameter)], **arguments)


wide, half = model_of(torch.float32), model_of(dtype)
arguments = CASES[case]
of_wide = optimizer_of(wide, "weight", **{k: v for k, v in arguments.items() if k != "reduce_dtype"})
of_half = optimizer_of(half, "weight", **arguments)
generator = torch.Generator().manual_seed(100 + gradbus.rank())
differs = 0
for _ in range(ROUNDS):
    # bfloat16 has 8 bits, float16 has fewer exponents: both hold these exactly.
    values = torch.randn(SHAPE, generator=generator).to(torch.bfloat16).clamp(-8, 8)
    values = torch.where(values.abs() < 2**-6, torch.zeros_like(values), values)
    for parameter, optimizer in ((wide, of_wide), (half, of_half)):
        optimizer.zero_grad()
        (parameter * values.to(parameter.dtype)).sum().backward()
        optimizer.step()
    expected = wide.grad.to(dtype)
    if case == "own":
        differs += int((half.grad != expected).sum())
    else:
        assert half.grad.dtype == dtype and torch.equal(half.grad, expected), (half.grad - expected).abs().max()
of_wide.flush(), of_half.flush()
if "compression" in arguments:
    ours, theirs = of_half.compression_state(), of_wide.compression_state()
    for part in ("residual", "momentum"):
        for name, share in theirs[part].items():
            assert ours[part][name].dtype == torch.float32 and torch.equal(ours[part][name], share), part
    of_half.load_compression_state(ours)
    again = of_half.compression_state()
    total = [gradbus.allreduce(state["residual"]["weight"], op=gradbus.Sum) for state in (ours, again)]
    assert torch.equal(*total) and total[0].abs().sum() > 0, (total[0] - total[1]).abs().max()
print(f"rounds {ROUNDS} differs {differs}", flush=True)
gradbus.shutdown()

"""A rank: hvd.SyncBatchNorm on this rank's samples against torch's normalization of all samples in one process."""

import copy

import gradbus.horovod.torch as hvd
import torch

hvd.init()
COUNTS = [3, 5, 2][: hvd.size()]  # samples of each rank
FIRST = sum(COUNTS[: hvd.rank()])
MINE = slice(FIRST, FIRST + COUNTS[hvd.rank()])


def compared(shape, steps=3, **options):
    """Outputs, gradients, running statistics and the result in evaluation are equal."""
    torch.manual_seed(5)
    features = shape[0]
    alone = {1: torch.nn.BatchNorm1d, 2: torch.nn.BatchNorm1d, 3: torch.nn.BatchNorm2d}[len(shape)](features, **options)
    if alone.affine:
        torch.nn.init.normal_(alone.weight)
        torch.nn.init.normal_(alone.bias)
    ours = hvd.SyncBatchNorm(features, **options)
    ours.load_state_dict(copy.deepcopy(alone.state_dict()))
    for _ in range(steps):
        whole = (100 + 3 * torch.randn(sum(COUNTS), *shape)).requires_grad_()  # far from 0: squares would lose digits
        weights = torch.randn(sum(COUNTS), *shape)
        part = whole.detach()[MINE].clone().requires_grad_()
        expected, found = alone(whole), ours(part)
        assert torch.allclose(found, expected[MINE], atol=2e-4), (found - expected[MINE]).abs().max()
        (expected * weights).sum().backward()
        (found * weights[MINE]).sum().backward()
        assert torch.allclose(part.grad, whole.grad[MINE], atol=2e-3), (part.grad - whole.grad[MINE]).abs().max()
    for a, b in zip(ours.parameters(), alone.parameters()):
        total = hvd.allreduce(a.grad, op=hvd.Sum)
        assert torch.allclose(total, b.grad, atol=1e-2, rtol=1e-3), (total, b.grad)
    for (name, a), b in zip(ours.named_buffers(), alone.buffers()):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-4), (name, a, b)
    ours.eval(), alone.eval()
    with torch.no_grad():
        expected = alone(whole)[MINE] if ours.track_running_stats else alone(whole[MINE])  # no collective operation
        assert torch.allclose(ours(part), expected, atol=1e-3)


compared((4,))
compared((4, 6))
compared((4, 6, 3), momentum=0.3, eps=1e-3)
compared((4, 3), momentum=None)
compared((4, 3), affine=False)
compared((4, 3), track_running_stats=False)

if hvd.size() > 1:  # the last rank has no sample
    ours, alone = hvd.SyncBatchNorm(2), torch.nn.BatchNorm1d(2)
    whole = torch.randn(4 * (hvd.size() - 1), 2, generator=torch.Generator().manual_seed(1))
    found = ours(whole[4 * hvd.rank() : 4 * hvd.rank() + 4])
    assert torch.allclose(found, alone(whole)[4 * hvd.rank() : 4 * hvd.rank() + 4], atol=1e-5)
    assert torch.allclose(ours.running_var, alone.running_var, atol=1e-5)

half = hvd.SyncBatchNorm(2).half() if hvd.size() > 1 else None
if half is not None:
    result = half(torch.full((4, 2), 300.0 * (1 + hvd.rank() % 2), dtype=torch.float16))
    assert result.dtype == torch.float16 and result.isfinite().all()
hvd.barrier()
print("ok")

"""A rank: what users of Horovod and PyTorch have reported of other systems."""

import tempfile

import gradbus
import gradbus.horovod.torch as hvd
import pytest
import torch
import torch.distributed as dist

hvd.init()
RANK = hvd.rank()


def autograd_sees_operations_in_place():
    x = torch.tensor([2.0], requires_grad=True)
    doubled = 2 * x
    loss = (doubled**2).sum()
    hvd.allreduce_(doubled)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    given = torch.ones(3)
    hvd.broadcast_(given, 0)
    assert given._version == 1
    with torch.inference_mode():
        inside = torch.ones(3)
        hvd.allreduce_(inside)
    hvd.allreduce_(inside)


def batch_normalization_is_alone_in_evaluation():
    layer = hvd.SyncBatchNorm(3, track_running_stats=False).eval()
    if RANK == 0:
        layer(torch.randn(4, 3))
    assert torch.equal(hvd.allgather(torch.zeros(1, 7)), torch.zeros(hvd.size(), 7))


def what_has_no_memory_is_named():
    for state, why in (
        (torch.nn.LazyLinear(3).state_dict(), "'bias' has no shape yet|'weight' has no shape yet"),
        ({"a": torch.eye(3).to_sparse(), "b": torch.ones(2)}, "'a' is sparse"),
        ({"a": torch.ones(1).expand(3), "b": torch.ones(2)}, "'a' has several elements in one place"),
    ):
        with pytest.raises(gradbus.InvalidError, match=why):
            hvd.broadcast_parameters(state, 0)


def futures_are_complete_after_wait():
    meeting = hvd.broadcast_object(tempfile.mkdtemp() + "/store", 0)
    dist.init_process_group("gradbus", init_method=f"file://{meeting}", rank=RANK, world_size=hvd.size())
    for start in [lambda: dist.all_reduce(torch.ones(4), async_op=True)] * 30 + [lambda: dist.barrier(async_op=True)]:
        work = start()
        future = work.get_future()
        work.wait()
        assert future.done()
        future.value()
    dist.destroy_process_group()


autograd_sees_operations_in_place()
batch_normalization_is_alone_in_evaluation()
what_has_no_memory_is_named()
if int(torch.__version__.split(".")[0]) >= 2:  # earlier, a backend cannot be written in Python
    futures_are_complete_after_wait()
print("ok")

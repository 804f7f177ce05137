"""What ranks/frameworks/hvd/hvd_run.py calls on ranks."""


def total(number, more=0):
    """All ranks add `number`, `more` and their own number."""
    import gradbus.horovod.torch as hvd
    import torch

    hvd.init()
    result = hvd.allreduce(torch.tensor([number + more + hvd.rank()]), op=hvd.Sum)
    return {"rank": hvd.rank(), "total": int(result.item())}


def fail():
    """Rank 1 raises."""
    import gradbus

    gradbus.init()
    if gradbus.rank() == 1:
        raise ValueError("rank 1 has no data")
    gradbus.barrier()

"""A rank of torchrun with torch.distributed on gradbus: `dist_torchrun.py [dies]`. It imports nothing of Gradbus."""

import os
import signal
import sys
import threading

import torch
import torch.distributed as dist

signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun ends the other ranks of one that died; they report first
dist.init_process_group("gradbus")
rank, size = dist.get_rank(), dist.get_world_size()


def total(group, members, results):
    for step in range(20):
        tensor = torch.full((1000,), float(rank + step))
        dist.all_reduce(tensor, group=group)
        results.append(tensor.eq(sum(member + step for member in members)).all().item())


def in_threads():
    """Everybody's group, that of neighbours, and that of even or odd ranks, each in a thread."""
    wanted = [list(range(size)), [rank // 2 * 2, rank // 2 * 2 + 1], list(range(rank % 2, size, 2))]
    lists = [list(range(size)), *([one, one + 1] for one in range(0, size, 2)), list(range(0, size, 2)),
             list(range(1, size, 2))]  # fmt: skip
    groups = [(dist.new_group(members), members) for members in lists]
    results: list[bool] = []
    threads = [
        threading.Thread(target=total, args=(group, members, results)) for group, members in groups if members in wanted
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 20 * len(threads), results


in_threads()
if "dies" in sys.argv:
    if rank == size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        dist.all_reduce(torch.ones(1))
    except RuntimeError as error:
        print(f"rank {rank} has: {error}", flush=True)
    sys.exit(1)
dist.destroy_process_group()
print("ok", flush=True)

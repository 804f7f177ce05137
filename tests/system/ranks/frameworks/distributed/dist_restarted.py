"""A rank of torchrun: `dist_restarted.py FOLDER init|group`. Rank 1 fails once, while the others wait for it there."""

import datetime
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist

FOLDER, PLACE = pathlib.Path(sys.argv[1]), sys.argv[2]
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
FAILED = FOLDER / "failed"


def others_are_here():
    return all((FOLDER / str(rank)).exists() for rank in range(SIZE) if rank != RANK)


def perhaps_fail(place):
    if place != PLACE or FAILED.exists():
        return
    if RANK != 1:
        (FOLDER / str(RANK)).touch()
        return
    while not others_are_here():
        time.sleep(0.05)
    time.sleep(1)  # now they wait for this rank
    FAILED.touch()
    sys.exit("this attempt fails on purpose")


def total(group=None):
    tensor = torch.full((1000,), float(RANK + 1))
    dist.all_reduce(tensor, group=group)
    assert tensor.eq(SIZE * (SIZE + 1) / 2).all(), tensor


perhaps_fail("init")
dist.init_process_group("gradbus", timeout=datetime.timedelta(seconds=40))
total()
for _ in range(2):
    perhaps_fail("group")
    total(dist.new_group(list(range(SIZE))))
dist.destroy_process_group()
dist.init_process_group("gradbus", timeout=datetime.timedelta(seconds=40))
total()
dist.destroy_process_group()
print("ok\n", end="", flush=True)  # in one piece, for torchrun leaves output unbuffered

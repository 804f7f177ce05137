"""A rank: groups that torch makes of others, and the world after a second init_process_group().

    dist_subgroups.py STORE   the beginning of the paths of files
"""

import os
import sys

import pytest
import torch
import torch.distributed as dist

rank, size = int(os.environ["GRADBUS_RANK"]), int(os.environ["GRADBUS_SIZE"])
for turn in range(2):
    dist.init_process_group("gradbus", init_method=f"file://{sys.argv[1]}-{turn}", rank=rank, world_size=size)

    def total(group=None):
        tensor = torch.tensor([float(rank + 1)])
        dist.all_reduce(tensor, group=group)
        return tensor.item()

    everybody = size * (size + 1) / 2
    assert total() == total(dist.group.WORLD) == everybody
    own, groups = dist.new_subgroups(1)
    assert len(groups) == size and total(own) == rank + 1
    turned, _ = dist.new_subgroups_by_enumeration([list(reversed(range(size)))])
    assert total(turned) == everybody
    with pytest.raises(RuntimeError, match="does not support splitting"):
        dist.split_group(None, [list(range(size))])
    assert total() == everybody
    dist.destroy_process_group()
print("ok")

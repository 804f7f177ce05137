"""A script for torch.distributed under `gradbus run`: it imports nothing of Gradbus."""

import torch
import torch.distributed as dist

dist.init_process_group("gradbus")
total = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(total)
assert total.item() == sum(range(1, dist.get_world_size() + 1))
dist.destroy_process_group()
print("ok")

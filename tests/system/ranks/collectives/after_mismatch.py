"""A rank: operations without a name go on after ranks have started different ones.

Argument: hvd (Horovod's front end, where join() is possible) or gradbus.
"""

import sys

import gradbus.torch as gradbus
import pytest
import torch

if sys.argv[1] == "hvd":
    import gradbus.horovod.torch as front
else:
    front = gradbus

front.init()
RANK, SIZE = front.rank(), front.size()

for _ in range(2):
    with pytest.raises(gradbus.MismatchError, match="GB-O903"):
        front.allreduce(torch.ones(17, 17 + RANK))
    with pytest.raises(gradbus.MismatchError, match="GB-O903"):
        front.allgather(torch.ones(2, 3 + RANK))
    assert front.allreduce(torch.ones(17, 17), op=front.Sum).sum() == 17 * 17 * SIZE
    assert front.allgather(torch.ones(2, 3)).shape == (2 * SIZE, 3)
print("ok")

"""A rank of four: hvd.init() with lists of ranks.

    hvd_init.py all         the list has all ranks in their order, and sets are added at once
    hvd_init.py reversed    all ranks in another order
    hvd_init.py two         two jobs of two ranks
    hvd_init.py missing     the list lacks this rank
"""

import os
import sys

import gradbus
import gradbus.horovod.torch as hvd
import torch

rank = int(os.environ["GRADBUS_RANK"])
kind = sys.argv[1]
one = torch.tensor([rank])
if kind == "all":
    some = hvd.ProcessSet([3, 1])
    hvd.init(comm=[0, 1, 2, 3], process_sets=[some, hvd.ProcessSet([0, 2])])
    assert (hvd.rank(), hvd.size()) == (rank, 4) and some.ranks == [1, 3]
    if some.included():
        assert hvd.allreduce(one, op=hvd.Sum, process_set=some).item() == 4
    assert hvd.is_homogeneous()
elif kind == "reversed":
    hvd.init([3, 2, 1, 0])
    assert (hvd.rank(), hvd.size()) == (3 - rank, 4)
    assert hvd.allgather(one).tolist() == [3, 2, 1, 0]
elif kind == "two":
    hvd.init(comm=[0, 3] if rank in (0, 3) else [1, 2])
    assert (hvd.rank(), hvd.size()) == ({0: 0, 3: 1, 1: 0, 2: 1}[rank], 2)
    assert hvd.allgather(one).tolist() == ([0, 3] if rank in (0, 3) else [1, 2])
    assert hvd.local_size() == 1 and hvd.cross_size() == 2 and hvd.is_homogeneous()
else:
    try:
        hvd.init(comm=[0, 1, 2])
    except gradbus.InvalidError as problem:
        assert rank == 3 and "rank 3 of 4" in str(problem) and not hvd.is_initialized(), problem
    else:
        assert hvd.allgather(one).tolist() == [0, 1, 2]
if hvd.is_initialized():
    hvd.shutdown()
print("ok")

"""Tensors of several sizes on a device (staging_double.py), posted on each node in another order in each step: the
sums of all ranks, to the bit. `nccl_orders.py STEPS [WAIT]`: rank 0 says "step N" behind each step; WAIT: until then
nobody goes on without a file of this name.
"""

import os
import pathlib
import random
import sys
import time

import gradbus.torch as gradbus
import staging_double
import torch
from gradbus._layout import DTYPES
from gradbus._session import current
from gradbus.torch._buckets.registered import Registered
from gradbus.torch._gpu import staging

COUNTS = [1, 7, 1000, 40_000, 1_500_000, 64, 33]

gradbus.init()
staging_double.install()
parameter = torch.zeros(1)
uuid = staging.uuid_for_rank_buffers(parameter, "none", "sync")
session = current()
staging.try_devices(session, [uuid])
cores = session.register_buckets(
    [(f"t{i}", count, DTYPES["float32"][1], gradbus.Sum, "none", 0, "sync") for i, count in enumerate(COUNTS)],
    [uuid] * len(COUNTS),
)
buckets = [Registered(core, parameter, 60_000) for core in cores]
expected = os.environ.get("GRADBUS_EXPECT", "shared") == "shared"
assert all(isinstance(bucket.storage, staging.Shared) == expected for bucket in buckets)
own_order = random.Random(gradbus.rank())
size = gradbus.size()

for step in range(int(sys.argv[1])):
    order = list(range(len(buckets)))
    own_order.shuffle(order)
    for index in order:
        bucket = buckets[index]
        bucket.flat.copy_(torch.arange(bucket.flat.numel()) % 1000 + (step + index) * (gradbus.rank() + 1))
        bucket.storage.produced()
        bucket.hand_over()
        time.sleep(own_order.uniform(0, 0.003))
    for index, bucket in enumerate(buckets):
        bucket.finish()
        bucket.copy_back()
        want = size * (torch.arange(bucket.flat.numel()) % 1000) + (step + index) * (size * (size + 1) // 2)
        assert torch.equal(bucket.flat, want.float()), (step, index, bucket.flat[:5], want[:5])
    if gradbus.rank() == 0:
        print("step", step, flush=True)
    while len(sys.argv) > 2 and not pathlib.Path(sys.argv[2]).exists():
        time.sleep(0.01)
gradbus.shutdown()
print("ok")

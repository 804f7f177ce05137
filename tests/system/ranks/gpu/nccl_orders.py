"""Tensors of several sizes on a device, posted on each node in another order in each step: the sums of all ranks, to
the bit.

    nccl_orders.py DEVICE STEPS [WAIT]

DEVICE is `double` (staging_double.py) or `cuda`. Rank 0 prints "step N" after each step. After each step the ranks
wait for a file named WAIT.
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

device, steps, *wait = sys.argv[1:]
gradbus.init()
if device == "double":
    staging_double.install()
parameter = torch.zeros(1, device="cuda" if device == "cuda" else "cpu")
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


def ramp(bucket):
    """0, 1, ..., 999, 0, 1, ... on the device of the bucket."""
    return (torch.arange(bucket.flat.numel(), device=bucket.flat.device) % 1000).float()


for step in range(int(steps)):
    order = list(range(len(buckets)))
    own_order.shuffle(order)
    for index in order:
        bucket = buckets[index]
        bucket.flat.copy_(ramp(bucket) + (step + index) * (gradbus.rank() + 1))
        bucket.storage.produced()
        bucket.hand_over()
        time.sleep(own_order.uniform(0, 0.003))
    for index, bucket in enumerate(buckets):
        bucket.finish()
        bucket.copy_back()
        want = size * ramp(bucket) + (step + index) * (size * (size + 1) // 2)
        assert torch.equal(bucket.flat, want), (step, index, bucket.flat[:5], want[:5])
    if gradbus.rank() == 0:
        print("step", step, flush=True)
    while wait and not pathlib.Path(wait[0]).exists():
        time.sleep(0.01)
gradbus.shutdown()
print("ok")

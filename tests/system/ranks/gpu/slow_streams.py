"""A bucket on a device (staging_double.py) whose streams take their time: nothing here waits for them but to look
at what they have read in the end. Two streams take turns in computing, and one hands over what the other wrote.

    slow_streams.py [COMPRESSION]   one that loses nothing of small whole numbers
"""

import sys

import gradbus.torch as gradbus
import staging_double
import torch
from gradbus._layout import DTYPES
from gradbus._session import current
from gradbus.torch._buckets.registered import Registered
from gradbus.torch._gpu import staging

COUNT, ROUNDS = 3_000_000, 4  # more than a piece, and than a partition
compression = sys.argv[1] if len(sys.argv) > 1 else "none"

gradbus.init()
slow, other = staging_double.Stream((0.02, 0.05)), staging_double.Stream((0.01, 0.03))
device = staging_double.device
staging_double.install()
parameter = torch.zeros(1)
uuid = staging.uuid_for_rank_buffers(parameter, compression, "sync")
staging.try_devices(current(), [uuid])
(core,) = current().register_buckets(
    [("slow", COUNT, DTYPES["float32"][1], gradbus.Sum, compression, 0, "sync")], [uuid]
)
device.compute = slow
bucket = Registered(core, parameter, 60_000)
assert isinstance(bucket.storage, staging.Shared)

read = []
for step in range(ROUNDS):
    device.compute = other
    value = float(step * 10 + gradbus.rank() + 1)
    other.put(lambda value=value: bucket.flat.fill_(value))
    bucket.storage.produced()
    device.compute = slow
    bucket.hand_over()
    bucket.finish()
    bucket.copy_back()
    assert not core.drain()  # it has nothing to give, and leaves what the agent's GPU still reads
    slow.put(lambda: read.append((bucket.flat.min().item(), bucket.flat.max().item())))
    ordered = staging_double.Event()  # the next round's writer comes after this round's reader
    device.record(ordered, slow)
    device.wait(other, ordered)
ended = staging_double.Event()
device.record(ended, slow)
ended.synchronize()
size = gradbus.size()
want = [float(step * 10 * size + size * (size + 1) // 2) for step in range(ROUNDS)]
assert read == [(value, value) for value in want], (read, want)
gradbus.shutdown()
print("ok")

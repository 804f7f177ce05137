"""What a rank tries to open of its GPU's memory (staging_double.py), and what it gets.

    device_trials.py untried          tensors without a trial: as programs do that know legacy handles alone
    device_trials.py refused TEXT     ... which this agent does not share so; its reason has TEXT
    device_trials.py descriptors      two sessions, and as many descriptors open after each
"""

import gc
import os
import sys

import gradbus.torch as gradbus
import staging_double
import torch
from gradbus._layout import DTYPES
from gradbus._session import current
from gradbus.torch._buckets.registered import Registered
from gradbus.torch._gpu import staging

BUCKETS = 5
what, *words = sys.argv[1:]
staging_double.install()
parameter = torch.zeros(1)


def register(tries):
    """Buckets of the session that there is."""
    session = current()
    uuid = staging.uuid_for_rank_buffers(parameter, "none", "sync")
    if tries:
        staging.try_devices(session, [uuid])
    return session.register_buckets(
        [(f"b{i}", 1000, DTYPES["float32"][1], gradbus.Sum, "none", 0, "sync") for i in range(BUCKETS)],
        [uuid] * BUCKETS,
    )


def open_files():
    return len(os.listdir("/proc/self/fd"))


def use_all():
    """Rounds in all of them; how many descriptors there were meanwhile."""
    buckets = [Registered(core, parameter, 60_000) for core in register(tries=True)]
    during = open_files()
    for bucket in buckets:
        bucket.flat.fill_(gradbus.rank() + 1)
        bucket.storage.produced()
        bucket.hand_over()
    for bucket in buckets:
        bucket.finish()
        bucket.copy_back()
        assert torch.equal(bucket.flat, torch.full_like(bucket.flat, sum(range(gradbus.size() + 1))))
    for bucket in buckets:
        bucket.storage.close()
    staging_double.device.rank_buffers.clear()
    return during


def run_session():
    gradbus.init()
    during = use_all()
    gradbus.shutdown()
    gc.collect()
    return during


if what == "descriptors":
    run_session()  # what is opened once in a process is open now
    before = open_files()
    during = run_session()
    assert open_files() == before, os.listdir("/proc/self/fd")
    assert during >= before + BUCKETS, (during, before)
else:
    gradbus.init()
    for core in register(tries=False):
        rank_buffer = core.device_rank_buffer()
        if what == "untried":
            sharing, descriptor, size, handle = rank_buffer[0]
            assert (sharing, descriptor, size) == (1, -1, 0) and any(handle), rank_buffer
        else:
            assert "GB-D628 NOT_ON_GPU: " in rank_buffer and words[0] in rank_buffer, rank_buffer
    gradbus.shutdown()
print("ok")

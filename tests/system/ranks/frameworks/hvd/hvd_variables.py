"""A rank: variables of Horovod that hvd.init() reads. Argument: the variable, and its value for HOROVOD_TIMELINE."""

import json
import os
import pathlib
import sys
import time

import gradbus
import gradbus.horovod.torch as hvd
import pytest
import torch


def stall_limit():
    """Rank 0 waits for others that come after two seconds."""
    os.environ["HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"] = "1"
    hvd.init()
    if hvd.rank() > 0:
        time.sleep(2.5)
        return
    began = time.monotonic()
    with pytest.raises(gradbus.TimeoutError, match="GB-P110"):
        hvd.allreduce(torch.ones(2))
    assert 0.9 < time.monotonic() - began < 2.4


def timeline(name):
    """Traces each all-reduce until stop_timeline()."""
    os.environ["HOROVOD_TIMELINE"] = name
    hvd.init()
    for _ in range(50):  # spans travel every 50 ms
        hvd.allreduce(torch.ones(1000), name="traced")
        time.sleep(0.02)
    hvd.barrier()
    hvd.stop_timeline()
    if hvd.rank() == 0:
        assert "traced" in str(json.loads(pathlib.Path(name).read_text()))
    hvd.barrier()
    hvd.shutdown()


stall_limit() if sys.argv[1] == "stall" else timeline(sys.argv[2])
print("ok")

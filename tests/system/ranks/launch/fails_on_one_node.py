"""A rank of torchrun: `fails_on_one_node.py FOLDER before|after`. Rank 1 fails once, before or after init()."""

import os
import pathlib
import sys

import gradbus
import numpy as np

FAILED = pathlib.Path(sys.argv[1], "failed")


def perhaps_fail(place):
    if place == sys.argv[2] and os.environ["RANK"] == "1" and not FAILED.exists():
        FAILED.touch()
        sys.exit("this attempt fails on purpose")


perhaps_fail("before")
gradbus.init()
perhaps_fail("after")
total = gradbus.allreduce(np.array([gradbus.rank() + 1]), op=gradbus.Sum)
print(f"sum={total[0]}", flush=True)
gradbus.shutdown()

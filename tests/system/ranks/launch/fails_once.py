"""A rank of torchrun: it sums with the others, and rank 1 fails in the first attempt."""

import os
import sys

import gradbus
import numpy as np

attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
gradbus.init()
total = gradbus.allreduce(np.array([gradbus.rank() + 1]), op=gradbus.Sum)
sys.stdout.write(f"sum={total[0]}@{attempt}\n")
sys.stdout.flush()
gradbus.barrier()  # both have written
if attempt == 0 and gradbus.rank() == 1:
    sys.exit("this attempt fails on purpose")
gradbus.shutdown()

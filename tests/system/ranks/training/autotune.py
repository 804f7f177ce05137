"""A rank whose steps take longest under all schedules but one, on another rank each: that one is found by all.

    autotune.py LOG
"""

import os
import pathlib
import sys
import time

os.environ.update(GRADBUS_AUTOTUNE="1", HOROVOD_AUTOTUNE_LOG=sys.argv[1])

import gradbus.torch as gradbus  # noqa: E402 - it reads the environment later, but so it is plain
import torch  # noqa: E402
from gradbus.torch import _autotune  # noqa: E402
from optimizer import assert_same, batches, loss_of, mine, new_model  # noqa: E402

_autotune.STEPS = 4
_autotune.WARM_STEPS = 1
BEST = ("bytescheduler", 4 << 20)
TURNS = len(_autotune.CANDIDATES)


def main():
    gradbus.init()
    ours, alone = new_model(3), new_model(3)
    optimizer = gradbus.DistributedOptimizer(torch.optim.SGD(ours.parameters(), lr=0.05, momentum=0.9))
    reference = torch.optim.SGD(alone.parameters(), lr=0.05, momentum=0.9)
    state = optimizer._gradbus
    for number in range(TURNS * 5 + 10):
        x, y = batches()[number % 5]
        now = (state.settings.schedule.name, state.settings.bucket_bytes)
        # Under each other schedule one rank is slow, and not always the same one.
        if now != BEST and number % gradbus.size() == gradbus.rank():
            time.sleep(0.05)
        elif now == BEST:
            time.sleep(0.005)
        for model, stepper, a, b in ((ours, optimizer, mine(x), mine(y)), (alone, reference, x, y)):
            stepper.zero_grad()
            loss_of(model, a, b).backward()
            stepper.step()
    assert (state.settings.schedule.name, state.settings.bucket_bytes) == BEST, state.settings
    assert state.tuner is None
    assert_same(ours, alone, tolerance=1e-5)
    gradbus.barrier()
    lines = pathlib.Path(sys.argv[1]).read_text().splitlines()
    assert lines[0] == "schedule,bucket_bytes,step_ms" and len(lines) == TURNS + 2, lines
    times = {tuple(line.split(",")[:2]): float(line.split(",")[2]) for line in lines[1:-1]}
    assert min(times, key=times.get) == (BEST[0], str(BEST[1])), times
    gradbus.shutdown()
    print("ok", flush=True)


main()

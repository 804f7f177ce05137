"""A rank whose clock shows the time that a known surface gives a setting: the search finds its lowest place.

    autotune.py LOG [BUDGET]

With BUDGET, the training asks for that many bytes in flight, so the search has one more dimension.
Real time does not count, so every run makes the same decisions. On each rank other settings are slow. All ranks must
find what is fast for the slowest one, and a second training takes what the first one has found.
"""

import math
import os
import pathlib
import sys

os.environ.update(GRADBUS_AUTOTUNE="1", HOROVOD_AUTOTUNE_LOG=sys.argv[1], HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE="2",
                  HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES="18", GRADBUS_AUTOTUNE_WARMUP_SAMPLES="2")  # fmt: skip

import gradbus.torch as gradbus  # noqa: E402 - it reads the environment later, but so it is plain
import torch  # noqa: E402
from gradbus.torch._tuning import autotune as _autotune  # noqa: E402
from optimizer import assert_same, batches, loss_of, mine, new_model  # noqa: E402

_autotune.WARM_STEPS = 1
_autotune.BYTES_MIN, _autotune.BYTES_STEP = 64, 16
SAMPLES = 18
PATH_CHUNK = 256 << 10
BUDGET = int(sys.argv[2]) if len(sys.argv) > 2 and sys.argv[2].isdigit() else 0


class Clock:
    """Stands in for the module time."""

    now = 0.0

    def monotonic(self):
        return self.now


clock = _autotune.time = Clock()
ask_for_all = _autotune.ask_for_all


def ask(process_set, name, question_of):
    """The size that the path wants is measured, and the search begins with it. Here it is always PATH_CHUNK."""

    def question():
        asked = question_of()
        is_free = asked["want"] == "chunks" and not asked["bytes"]
        return {**asked, "bytes": PATH_CHUNK} if is_free else asked

    return ask_for_all(process_set, name, question)


_autotune.ask_for_all = ask


def cost_ms(setting, rank, best_bytes=400):
    """20 ms at the best place of the slowest rank: dear with `best_bytes`; more for each doubling away from it.

    Chunks of 128 KiB are the best, and so are three times BUDGET in flight.
    """
    schedule, size, chunk, budget = setting
    away = abs(math.log2(size / best_bytes))
    chunks = abs(math.log2((chunk or PATH_CHUNK) / (128 << 10)))
    chunks += abs(math.log2(budget / (3 * BUDGET))) if BUDGET and budget else 0
    far = 12.0 if schedule != "dear" and rank == len(schedule) % gradbus.size() else 0.0
    return 20 + far + (6 * away + chunks) * (1 if rank == 0 else 0.5)


def surface(setting, best_bytes):
    return max(cost_ms(setting, rank, best_bytes) for rank in range(gradbus.size()))


def train(seed, best_bytes):
    """Until the tuner has ended; how many settings it tried."""
    ours, alone = new_model(seed), new_model(seed)
    for model in (ours, alone):
        for parameter in model.parameters():
            parameter.requires_grad_()
    schedule = f"bytescheduler:budget={BUDGET}" if BUDGET else None
    optimizer = gradbus.DistributedOptimizer(
        torch.optim.SGD(ours.parameters(), lr=0.05, momentum=0.9), schedule=schedule)
    reference = torch.optim.SGD(alone.parameters(), lr=0.05, momentum=0.9)
    state = optimizer._gradbus
    tuner = state.tuner
    for number in range(4 + 3 * (SAMPLES + 1) + 3):  # a remembered setting comes on top
        x, y = batches()[number % 5]
        for model, stepper, a, b in ((ours, optimizer, mine(x), mine(y)), (alone, reference, x, y)):
            stepper.zero_grad()
            loss_of(model, a, b).backward()
            if stepper is optimizer:
                clock.now += cost_ms(tuner._now, gradbus.rank(), best_bytes) / 1e3
            stepper.step()
    assert state.tuner is None and optimizer.exchange_plan()["is_final"], "the search has not ended"
    assert_same(ours, alone, tolerance=1e-5)
    setting = (state.settings.schedule.name, state.settings.bucket_bytes, *tuner._now[2:])
    assert state.settings.schedule.budget_bytes == setting[3], (state.settings.schedule, setting)
    return tuner, setting


def main():
    gradbus.init()
    forward = gradbus.local_size() < gradbus.size() and "torch1" not in sys.argv
    tuner, setting = train(3, 400)
    schedules = tuner._space.schedules
    times = {found: seconds * 1e3 for found, seconds in tuner.found}
    assert len(tuner.found) == SAMPLES, tuner.found
    for found, ms in times.items():
        assert abs(ms - surface(found, 400)) < 1e-6, (found, ms)
    assert setting == min(times, key=times.get), (setting, times)
    lowest = min(surface((name, 400, 128 << 10, 3 * BUDGET), 400) for name in schedules)
    default = tuner.found[0][1] * 1e3
    assert times[setting] - lowest < (default - lowest) / 8, (times, forward)
    gradbus.barrier()
    lines = pathlib.Path(sys.argv[1]).read_text().splitlines()
    budget = "budget_bytes," if BUDGET else ""
    assert lines[0] == f"schedule,bucket_bytes,chunk_bytes,{budget}step_ms" and len(lines) == SAMPLES + 2, lines
    budgets = {found[3] for found, _ in tuner.found}
    assert len(budgets) > 5 if BUDGET else budgets == {0}, budgets
    assert lines[-1].startswith(f"# the best: {setting[0]}, {setting[1]} bytes, in chunks of "), lines
    logged = [(line.split(",")[0], int(line.split(",")[1])) for line in lines[1:-1]]
    assert logged == [found[:2] for found, _ in tuner.found], lines
    chunks = {int(line.split(",")[2]) for line in lines[1:-1]}
    assert len(chunks) > 5 if gradbus.local_size() < gradbus.size() else chunks == {0}, lines

    again, same = train(3, 400)  # the same model: the second setting is the remembered one, and it stays
    turns = 1 if setting == again.found[0][0] else 2  # the default is measured first
    assert same == setting and len(again.found) == turns, (same, again.found)
    other, _ = train(3, 1600)  # the cluster has changed: what is remembered is slower than the default now
    assert len(other.found) == SAMPLES + 1 or other.found[1][1] <= other.found[0][1], other.found
    gradbus.shutdown()
    print("ok", flush=True)


main()

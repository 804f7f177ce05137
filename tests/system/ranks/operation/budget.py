"""A rank whose tensors have a byte budget: the ranks agree on it, `gradbus status` shows it, and rounds end.

    budget.py DONE GO_ON GRADBUS COORDINATOR TOKEN
"""

import json
import os
import pathlib
import subprocess
import sys
import time

import gradbus
import torch
from gradbus._session import current

F32 = 1
TENSORS, COUNT, BUDGET = 12, 1000, 10_000
DONE, GO_ON, GRADBUS, COORDINATOR, TOKEN = sys.argv[1:]


def spec(name, mode="sync"):
    return (name, COUNT, F32, int(gradbus.Sum), "none", 0, mode)


def refused(error, text, budget, mode="sync"):
    try:
        current().register_buckets([spec("t", mode)], (), [(0, 0)], [budget])
    except error as what:
        assert text in str(what), what
    else:
        raise AssertionError(text)


gradbus.init()
rank = gradbus.rank()
refused(gradbus.MismatchError, "with 4000 bytes in flight", 4000 + min(rank, 1))
refused(gradbus.InvalidError, "at most 1099511627776 are allowed", (1 << 40) + 1)
refused(gradbus.InvalidError, "is for reductions in mode sync", 4000, "delayed:k=1")

numbers = range(TENSORS)
cores = current().register_buckets(
    [spec(f"t{n}") for n in numbers], (), [(n % 3, n % 3) for n in numbers], [BUDGET] * TENSORS
)
views = [torch.from_dlpack(core.delay_slots()[0]) for core in cores]
order = list(numbers)[::-1] if rank == 1 else list(numbers)
for step in range(1, 21):
    for n in order:
        views[n].fill_(step * (rank + 1))
        cores[n].start()
        if rank == 1 and n % 4 == 0:
            cores[n].wait()  # the others have posted more than fits before this one
    for n in numbers:
        cores[n].wait()
        assert float(views[n][0]) == float(views[n][-1]) == 6 * step, (n, views[n][:3])
if rank == 0:
    command = [GRADBUS, "status", "--job", current().job, "--coordinator", COORDINATOR]
    environment = dict(os.environ, GRADBUS_TOKEN_FILE=TOKEN)
    say = {"env": environment, "text": True, "capture_output": True, "check": False}
    shown = json.loads(subprocess.run([*command, "--json"], **say).stdout)["jobs"][0]["tensors"]
    assert {one["budget_bytes"] for one in shown if one["name"].startswith("t")} == {BUDGET}, shown
    text = " ".join(subprocess.run([*command, "--tensors"], **say).stdout.split())
    assert "starts while at most 10.0 kB are in flight" in text, text
gradbus.barrier()
if rank == 0:
    pathlib.Path(DONE).touch()
deadline = time.monotonic() + 60
while not pathlib.Path(GO_ON).exists() and time.monotonic() < deadline:
    time.sleep(0.05)
gradbus.shutdown()
print("ok", flush=True)

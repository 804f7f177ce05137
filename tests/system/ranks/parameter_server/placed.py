"""Steps through shards that hold unequal parts: one rank, by the C interface.

placed.py LIBRARY GRADBUS MODE STEPS BEFORE   BEFORE: steps that a restored job has made already

Gradients are even integers, so sums and means of two or three ranks are exact in float32. Rank 0 prints the
coordinator's word on the job's shards when all that they have received is counted.
"""

import json
import os
import subprocess
import sys
import time

import c_rank

COUNT = 1_500_001
DEADLINE_S = 60


def gradient(rank, number):
    """The same in every run, and another one in each step."""
    return 6.0 * (rank + 1 + number % 5)


def job_status(gradbus):
    words = [gradbus, "status", "--json", "--coordinator", os.environ["GRADBUS_COORDINATOR"]]
    shown = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_S, check=False).stdout
    (job,) = json.loads(shown)["jobs"]
    return job


def all_counted(gradbus, wanted):
    """Counters come with heartbeats."""
    until = time.monotonic() + DEADLINE_S
    job = job_status(gradbus)
    while sum(shard["received_bytes"] for shard in job["shards"]) < wanted and time.monotonic() < until:
        time.sleep(0.1)
        job = job_status(gradbus)
    return job


def main():
    library, gradbus, mode, steps, before = *sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5])
    rank = c_rank.Rank(library)
    size = rank.library.gradbus_size(rank.session)
    rank.register({"weight": COUNT}, mode)
    (data,) = rank.data
    sums = mode.startswith("ps:sync")
    if not sums:
        rank.round(0.0)  # sets the parameters of a job that is not restored
    for number in range(before, before + steps):
        rank.round(gradient(rank.number, number))
        mean = sum(gradient(other, number) for other in range(size)) / size
        assert not sums or (data == mean).all(), (number, data.min(), data.max(), mean)
    rank.call("barrier", rank.session)
    if not sums:
        rank.round(0.0, "start_pull")
        wanted = -sum(gradient(other, number) for other in range(size) for number in range(before + steps))
        assert (data == wanted).all(), (data.min(), data.max(), wanted)
    if rank.number == 0:
        rounds = steps if sums else steps + 2
        print(json.dumps(all_counted(gradbus, rounds * size * 4 * COUNT)["shards"]), flush=True)
    rank.call("barrier", rank.session)
    rank.shutdown()
    print("ok")


main()

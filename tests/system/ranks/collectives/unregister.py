"""Registers tensors, uses them and unregisters them, again and again; prints what memory is mapped and used.

    unregister.py cycles MODE COMPRESSION CYCLES      buckets of one name; a line of JSON at the end
    unregister.py orders                              each rank unregisters in an order of its own, with delays
    unregister.py errors                              what is refused, and how
    unregister.py named                               ad-hoc operations
    unregister.py views                               an array of a bucket outlives it
    unregister.py models                              sixty models in 64 MiB; then one that is too large
    unregister.py gauged SECONDS                      tensors whose agents measure what their codec loses
    unregister.py unused                              jobs that unregister tensors before their links are up
    unregister.py leaves                              a rank leaves without unregistering
"""

import gc
import json
import pathlib
import random
import re
import sys
import time

import gradbus
import numpy
import torch
from gradbus._session import current

F32 = 1


def spec(name, count, compression="none", mode="sync"):
    return (name, count, F32, int(gradbus.Sum), compression, 0, mode)


def array(delay_slot):
    """A view of a delay slot for NumPy."""
    return torch.from_dlpack(delay_slot).numpy()


def register(*specs):
    return current().register_buckets(list(specs))


def mapped():
    """Bytes of all shared segments that this process maps, and of those that are in memory."""
    total = resident = 0
    text = pathlib.Path("/proc/self/smaps").read_text()
    for block in re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", text):
        if "memfd:gradbus" in block:
            total += int(re.search(r"^Size: +(\d+)", block, re.M).group(1)) * 1024
            resident += int(re.search(r"^Rss: +(\d+)", block, re.M).group(1)) * 1024
    return total, resident


def use(buckets, step):
    """One all-reduce of each bucket, whose sum is known; the first use finds zeros."""
    for number, bucket in enumerate(buckets):
        for delay_slot in bucket.delay_slots():
            delay_slot = array(delay_slot)
            assert not delay_slot.any(), (step, number, delay_slot[delay_slot != 0][:4])
        array(bucket.delay_slots()[bucket.delay_slot])[:] = gradbus.rank() + 1 + step + number
        bucket.start()
    ranks = gradbus.size()
    for number, bucket in enumerate(buckets):
        bucket.wait()
        sum_ = ranks * (ranks + 1) / 2 + ranks * (step + number)
        delayed = len(bucket.delay_slots()) > 1
        while delayed and bucket.drain():
            pass
        if not delayed and bucket.staleness != 99:
            found = array(bucket.delay_slots()[0])
            assert (found == sum_).all(), (step, number, found[:3], sum_)


def cycles(mode, compression, count):
    sizes = []
    for step in range(int(count)):
        elements = [100_000, 30_011, 7][:: 1 if step % 2 else -1]
        buckets = register(*(spec(f"b{i}", n, compression, mode) for i, n in enumerate(elements)))
        if mode.startswith("ps:async"):
            for bucket in buckets:
                array(bucket.delay_slots()[0])[:] = 1.0
                bucket.start()
                bucket.wait()
                assert (array(bucket.delay_slots()[0]) == 1.0).all()
        else:
            use(buckets, step)
        for bucket in buckets:
            bucket.unregister()
        gradbus.barrier()
        sizes.append(mapped())
    print(json.dumps(sizes))


def orders():
    draw = random.Random(gradbus.rank())
    for step in range(12):
        buckets = register(*(spec(f"o{i}", 1000 * (i + 1)) for i in range(4)))
        use(buckets, step)
        for bucket in draw.sample(buckets, len(buckets)):
            if draw.random() < 0.3:
                time.sleep(draw.random() * 0.05)
            bucket.unregister()


def refused(call, *words, error=gradbus.InvalidError):
    try:
        call()
    except error as problem:
        text = str(problem)
        assert "\n" not in text and text.startswith("GB-O90") and all(word in text for word in words), text
        return
    raise AssertionError(f"accepted: {words}")


def errors():
    (bucket,) = register(spec("busy", 1000))
    gradbus.barrier()
    bucket.start()
    refused(bucket.unregister, "busy", "in use", "wait", error=gradbus.BusyError)
    bucket.wait()
    bucket.unregister()
    for call in (bucket.start, bucket.wait, bucket.unregister, bucket.delay_slots, bucket.drain):
        refused(call, "busy", "was unregistered")
    refused(lambda: gradbus.unregister("nobody"), "nobody", "no operation has used")
    refused(lambda: gradbus.unregister("busy"), "busy", "no operation has used")
    (again,) = register(spec("busy", 1000))
    use([again], 5)
    (delayed,) = register(spec("delayed", 10, mode="delayed:k=1"))
    delayed.start()
    delayed.wait()
    refused(delayed.unregister, "delayed", "drain", error=gradbus.BusyError)
    while delayed.drain():
        pass
    delayed.unregister()
    handle = gradbus.allreduce_async(numpy.ones(4), name="slow", op=gradbus.Sum)
    gradbus.synchronize(handle)
    gradbus.unregister("slow")


def named():
    ranks, rank = gradbus.size(), gradbus.rank()
    gradbus.barrier()
    sizes = []
    for step in range(60):
        count = 20_000 + step  # of another size each time: each is another tensor
        result = gradbus.allreduce(numpy.full(count, rank + 1.0, "f4"), name="loss", op=gradbus.Sum)
        assert (result == ranks * (ranks + 1) / 2).all() and len(result) == count
        parts = gradbus.allgather(numpy.full(1000 + rank, rank, "i4"), name="parts")
        assert len(parts) == sum(1000 + r for r in range(ranks))
        if step % 3 == 0:
            gradbus.unregister("parts")
        gradbus.barrier()
        sizes.append(mapped())
    print(json.dumps(sizes))


def views():
    (bucket,) = register(spec("viewed", 50_000))
    use([bucket], 0)
    view = array(bucket.delay_slots()[0])
    kept = view.copy()
    bucket.unregister()
    del bucket
    others = register(*(spec(f"other{i}", 50_000) for i in range(4)))
    use(others, 3)
    assert (view == kept).all()
    view[:] = 4
    del view
    gc.collect()
    for bucket in others:
        bucket.unregister()
    gradbus.barrier()
    time.sleep(0.3)
    before, _ = mapped()
    use(register(*(spec(f"more{i}", 50_000) for i in range(5))), 1)
    assert mapped()[0] == before, (mapped(), before)


def leaves():
    buckets = register(*(spec(f"l{i}", 200_000) for i in range(2)))
    use(buckets, 0)
    team = gradbus.add_process_set(range(gradbus.size() - 1))
    gradbus.barrier()
    if gradbus.rank() == gradbus.size() - 1:
        gradbus.shutdown()
        return
    for bucket in buckets:
        bucket.unregister()
    gradbus.allreduce(numpy.ones(3), process_set=team)


def models():
    kept = []
    for step in range(60):
        buckets = register(*(spec(f"model{step}-{i}", 400_000) for i in range(2)))
        use(buckets, step)
        if step < 4:
            kept += buckets
        else:
            for bucket in buckets:
                bucket.unregister()
        gradbus.barrier()  # every rank has unregistered them, so the next ones find their memory free
    time.sleep(0.5)
    try:
        register(spec("too large", 20_000_000))
    except gradbus.ExhaustedError as problem:
        text = str(problem)
        assert "S201" in text and "unregister" in text and "old optimizer" in text, text
        assert f"--shm-bytes-max {64 << 20}" in text, text
    else:
        raise AssertionError("the quota does not hold")


def gauged(seconds):
    """Each agent tells the coordinator what it has measured a few times a second; ranks agree on the end."""
    ends = time.monotonic() + float(seconds)
    given, going = torch.randn(20000), True
    while going:
        for _ in range(3):
            gradbus.allreduce(given, "gauged", compression="topk:ratio=0.1,fidelity=1")
        gradbus.unregister("gauged")
        going = gradbus.allreduce(torch.tensor(time.monotonic() < ends, dtype=torch.int32), "going", op=gradbus.Min) > 0


def unused():
    for job in range(40):
        for step in range(3):
            for bucket in register(*(spec(f"u{step}-{i}", 7) for i in range(3))):
                bucket.unregister()
        if job % 2:
            gradbus.barrier()
        gradbus.shutdown()
        gradbus.init()


gradbus.init()
for part in (cycles, orders, errors, named, views, models, gauged, unused, leaves):
    if part.__name__ == sys.argv[1]:
        part(*sys.argv[2:])
print("ok")

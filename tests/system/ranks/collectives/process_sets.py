"""A rank: process sets that overlap, of one rank, of all; every operation on them; and what is refused.

    process_sets.py            all of it
    process_sets.py differ     ranks give different lists: every rank prints its error as JSON
    process_sets.py killed     rank 1 dies: its set and the job end, a set without it goes on
"""

import json
import os
import signal
import sys
import time

import gradbus
import numpy as np


def check_members(process_set, members):
    """Every operation gives what the members alone bring."""
    rank, size = gradbus.rank(), len(members)
    assert process_set.size() == size and process_set.included() == (rank in members)
    if rank not in members:
        try:
            gradbus.allreduce(np.ones(1), process_set=process_set)
        except gradbus.InvalidError as error:
            assert f"rank {rank} is not in process set {members}" in str(error), error
            return
        raise AssertionError("no error")
    place = members.index(rank)
    assert process_set.rank() == place
    mine = np.arange(size * 2.0) + rank
    total = sum(members)
    everybody = [np.arange(size * 2.0) + member for member in members]
    with_set = {"process_set": process_set}
    expected = np.arange(size * 2.0) * size + total
    np.testing.assert_array_equal(gradbus.allreduce(mine, op=gradbus.Sum, **with_set), expected)
    grouped = gradbus.grouped_allreduce([mine, mine], op=gradbus.Sum, **with_set)
    np.testing.assert_array_equal(grouped, [expected] * 2)
    shard = gradbus.reducescatter(mine, op=gradbus.Sum, **with_set)
    np.testing.assert_array_equal(shard, expected[place * 2 : place * 2 + 2])
    gathered = gradbus.allgather(mine, **with_set)
    np.testing.assert_array_equal(gathered, np.concatenate(everybody))
    root = members[-1]  # a rank of the job
    np.testing.assert_array_equal(gradbus.broadcast(mine, root, **with_set), everybody[-1])
    reduced = gradbus.reduce(mine, root, op=gradbus.Max, **with_set)
    assert (reduced is None) == (rank != root)
    part = gradbus.scatter(mine if rank == root else mine[:2], root, **with_set)
    np.testing.assert_array_equal(part, everybody[-1][place * 2 : place * 2 + 2])
    swapped, splits = gradbus.alltoall(mine, [2] * size, **with_set)
    assert splits.tolist() == [2] * size
    np.testing.assert_array_equal(swapped[:2], everybody[0][place * 2 : place * 2 + 2])
    assert gradbus.broadcast_object(rank, root, **with_set) == root
    assert gradbus.allgather_object(rank, **with_set) == members
    gradbus.barrier(process_set)


def check_refused(call, kind, *parts):
    try:
        call()
    except kind as error:
        assert all(part in str(error) for part in parts), error
        return
    raise AssertionError(f"no {kind.__name__}")


def whole():
    size = gradbus.size()
    lists = [[0], [size - 1, 0], list(range(size)), list(range(0, size, 2)), [1]]
    lists = list({tuple(sorted(members)): members for members in lists}.values())
    sets = [gradbus.add_process_set(members) for members in lists]
    for process_set, members in zip(sets, lists):
        check_members(process_set, members)
    gradbus.barrier(gradbus.global_process_set)
    for process_set, members in reversed(list(zip(sets, lists))):
        check_members(process_set, members)
    invalid = gradbus.InvalidError
    check_refused(lambda: gradbus.add_process_set([0, 0]), invalid, "[0, 0]", "twice")
    check_refused(lambda: gradbus.add_process_set([]), invalid, "empty")
    check_refused(lambda: gradbus.add_process_set([0, size]), invalid, f"0..{size - 1}")
    check_refused(lambda: gradbus.add_process_set(["0"]), invalid, "'0'")
    check_refused(lambda: gradbus.add_process_set(sets[0]), invalid, "in use")
    for known in (sets[0].ranks, sets[1].ranks[::-1], gradbus.ProcessSet(sets[1].ranks)):
        check_refused(lambda known=known: gradbus.add_process_set(known), invalid, "already")
    gradbus.barrier()
    assert gradbus.remove_process_set(sets[1]) and not gradbus.remove_process_set(sets[1])
    assert not gradbus.remove_process_set(gradbus.global_process_set)
    check_refused(lambda: gradbus.allreduce(np.ones(1), process_set=sets[1]), invalid, "not known")
    again = gradbus.add_process_set(lists[1])
    check_members(again, lists[1])
    check_members(sets[0], lists[0])
    gradbus.shutdown()
    assert not sets[0].initialized
    print("ok")


def differ():
    """The last rank wants another set: all learn which rank wants what, and the job goes on."""
    last = gradbus.rank() == gradbus.size() - 1
    try:
        gradbus.add_process_set([1, 0] if last else [0, 1])
    except gradbus.GradbusError as error:
        print(json.dumps({"error": type(error).__name__, "text": str(error)}))
    total = gradbus.allreduce(np.ones(1), op=gradbus.Sum)
    assert total[0] == gradbus.size()
    print("ok")


def killed():
    size = gradbus.size()
    with_it = gradbus.add_process_set([0, 1])
    without = gradbus.add_process_set(list(range(2, size)))
    gradbus.barrier()
    if gradbus.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    target = with_it if gradbus.rank() == 0 else gradbus.global_process_set
    try:
        while True:
            gradbus.allreduce(np.ones(1), process_set=target)
    except gradbus.PeerLostError as error:
        text = str(error)
    seconds = time.monotonic() - began
    if gradbus.rank() >= 2:
        total = gradbus.allreduce(np.ones(1), op=gradbus.Sum, process_set=without)
        assert total[0] == size - 2
    print(json.dumps({"text": text, "seconds": seconds}))
    print("ok")


if __name__ == "__main__":
    gradbus.init()
    {"differ": differ, "killed": killed}.get((sys.argv + [""])[1], whole)()

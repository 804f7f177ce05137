"""Mistakes and deaths with torch.distributed on gradbus: `dist_trouble.py STORE CASE`. Each gives one line, no hang.

The last rank is the one that makes the mistake.
"""

import datetime
import os
import signal
import sys
import threading
import time
import warnings

import gradbus
import torch
import torch.distributed as dist
from torch_group import RANK, SIZE, init, raises

CASE = sys.argv[2]
LAST = SIZE - 1
SECOND = datetime.timedelta(seconds=1)
DEADLOCK_S = 2  # server/coordinator/jobs/coordinator_options.h


def one_line(kind, words, call):
    """``call`` raises this kind, with these words in one line that says what to do next."""

    def checked():
        try:
            call()
        except kind as error:
            assert "\n" not in str(error) and " | next: " in str(error), error
            raise

    raises(kind, words, checked)


def total(group=None):
    """An all-reduce that works."""
    tensor = torch.ones(3)
    dist.all_reduce(tensor, group=group)
    assert tensor.tolist() == [dist.get_world_size(group)] * 3


def dies():
    group = dist.new_group(list(range(SIZE)))
    total(group)
    if RANK == LAST:
        os.kill(os.getpid(), signal.SIGKILL)
    lost = ["GB-P101", f"rank {LAST}"]
    calls = [
        total,
        dist.barrier,
        dist.monitored_barrier,
        lambda: total(group),
        lambda: dist.recv(torch.ones(1), LAST),
        lambda: dist.send(torch.ones(1), LAST),
        lambda: dist.recv(torch.ones(1)),
        lambda: dist.all_reduce(torch.ones(1), async_op=True).wait(),
    ]
    for call in calls:
        one_line(gradbus.PeerLostError, lost, call)
    raises(RuntimeError, lost, lambda: dist.all_reduce(torch.ones(1), async_op=True).get_future().wait())


def leaves():
    total()
    if RANK == LAST:
        dist.destroy_process_group()
        return
    one_line(gradbus.PeerLostError, ["GB-P105", f"rank {LAST}"], total)


def late():
    store = dist.PrefixStore("late", dist.distributed_c10d._get_default_store())
    if RANK == LAST:
        store.wait([str(rank) for rank in range(LAST)])
        return
    names = ["GB-P110", f"rank {LAST}", "monitored_barrier"]
    one_line(gradbus.TimeoutError, names, lambda: dist.monitored_barrier(timeout=SECOND))
    options = dist.BarrierOptions()
    options.timeout = SECOND
    names = ["GB-P110", "barrier", "monitored_barrier() there, which names the ranks"]  # on other nodes
    one_line(gradbus.TimeoutError, names, lambda: dist.group.WORLD.barrier(options).wait())
    work = dist.all_reduce(torch.ones(2), async_op=True)
    one_line(gradbus.TimeoutError, ["GB-P110", "allreduce"], lambda: work.wait(SECOND))
    one_line(gradbus.TimeoutError, ["GB-P110"], lambda: dist.irecv(torch.ones(1), LAST).wait(SECOND))
    one_line(gradbus.TimeoutError, ["GB-P110"], lambda: dist.irecv(torch.ones(1)).wait(SECOND))
    store.set(str(RANK), "has seen them")


def differs():
    odd = int(RANK == LAST)
    kind = torch.float64 if odd else torch.float32
    for call in (
        lambda: dist.all_reduce(torch.ones(10 + odd)),
        lambda: dist.broadcast(torch.ones(10, dtype=kind), 0),
        lambda: dist.all_gather([torch.ones(10, dtype=kind)] * SIZE, torch.ones(10, dtype=kind)),
    ):
        one_line(gradbus.MismatchError, ["GB-O903", "same order, with the same sizes"], call)
        total()
    sizes = [10 + int(rank == LAST) for rank in range(SIZE)]
    other = next(rank for rank in range(SIZE) if sizes[rank] != sizes[RANK])
    words = [f"rank {other} sent {sizes[other]} elements"]
    mine = torch.ones(sizes[RANK])
    one_line(gradbus.InvalidError, words, lambda: dist.all_gather([torch.ones_like(mine)] * SIZE, mine))
    one_line(gradbus.InvalidError, words, lambda: dist.all_gather_into_tensor(torch.ones(SIZE * sizes[RANK]), mine))
    total()


def wrong():
    warnings.simplefilter("ignore")
    parts = [torch.ones(2), torch.ones(3)]
    nested = [torch.nested.nested_tensor(parts), torch.nested.nested_tensor(parts, layout=torch.jagged)]
    sparse = torch.ones(3).to_sparse()
    for words, call in (
        *((["nested tensor", "values()"], lambda n=n: dist.all_reduce(n)) for n in nested),
        *((["nested tensor"], lambda n=n: dist.broadcast(n, 0)) for n in nested),
        (["nested tensor"], lambda: dist.all_gather([torch.ones(3)] * SIZE, nested[1])),
        (["nested tensor"], lambda: dist.send(nested[0], (RANK + 1) % SIZE)),
        (["nested tensor"], lambda: dist.recv(nested[1])),
        (["sparse", "to_dense()"], lambda: dist.all_reduce(sparse, dist.ReduceOp.MIN)),
        (["sparse"], lambda: dist.broadcast(sparse, 0)),
        (["meta"], lambda: dist.all_reduce(torch.ones(3, device="meta"))),
        (["float8_e4m3fn"], lambda: dist.all_reduce(torch.ones(3).to(torch.float8_e4m3fn))),
        (["elements in"], lambda: dist.all_gather_into_tensor(torch.ones(3 * SIZE + 1), torch.ones(3))),
        (["elements in"], lambda: dist.reduce_scatter_tensor(torch.ones(3), torch.ones(3 * SIZE + 1))),
        (["dtypes"], lambda: dist.all_gather_into_tensor(torch.ones(3 * SIZE), torch.ones(3).double())),
        (["splits"], lambda: dist.all_to_all_single(torch.ones(4), torch.ones(4), [1] * SIZE, [5] * SIZE)),
    ):
        one_line(gradbus.InvalidError, ["GB-O900", *words], call)
        total()


def again():
    raises(ValueError, ["twice"], init)
    group = dist.new_group(list(range(SIZE)))
    dist.destroy_process_group(group)
    raises(ValueError, ["not initialized"], lambda: dist.all_reduce(torch.ones(1), group=group))
    work = dist.all_reduce(torch.ones(5), async_op=True) if RANK == 0 else None
    for part in ("b", "c"):
        dist.destroy_process_group()
        init(part=part)
        total()
    if work is not None:
        one_line(gradbus.ClosedError, ["destroyed before this operation ended"], work.wait)


def forks():
    group = dist.new_group(list(range(SIZE)))
    total(group)
    child = os.fork()
    if child == 0:
        try:
            for call in (
                total, dist.barrier, dist.monitored_barrier, lambda: total(group),
                lambda: dist.send(torch.ones(1), (RANK + 1) % SIZE), lambda: dist.recv(torch.ones(1)),
                lambda: dist.new_group([RANK]),
            ):  # fmt: skip
                one_line(gradbus.ClosedError, ["GB-O907", "forked"], call)
            dist.destroy_process_group()
        except BaseException as error:
            print("child:", repr(error), flush=True)
            os._exit(1)
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    total()
    total(group)


def unfinished():
    """Ends with operations in flight, without destroy_process_group(): threads of Gradbus are in their waits."""
    total()
    dist.isend(torch.ones(3), (RANK + 1) % SIZE)
    dist.irecv(torch.ones(3), tag=5)
    if RANK == 0:
        dist.all_reduce(torch.ones(4), async_op=True).get_future()


def interrupted():
    total()
    if RANK != LAST:
        one_line(gradbus.PeerLostError, ["GB-P105", f"rank {LAST}"], total)
        return
    work = dist.irecv(torch.ones(1), 0)
    for call in (work.wait, lambda: dist.all_reduce(torch.ones(7))):
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        raises(KeyboardInterrupt, [], call)


def threads():
    """A group for each of four threads, with collectives and messages at the same time."""
    groups = [dist.new_group(list(range(SIZE))) for _ in range(4)]
    failures = []

    def use(number):
        try:
            for step in range(20):
                tensor = torch.full((100 * (number + 1),), float(RANK + step))
                dist.all_reduce(tensor, group=groups[number])
                assert tensor.eq(SIZE * step + SIZE * (SIZE - 1) / 2).all()
                got = torch.zeros(2)
                work = dist.isend(torch.full((2,), float(step + number)), (RANK + 1) % SIZE, groups[number])
                dist.recv(got, (RANK - 1) % SIZE, groups[number])
                work.wait()
                assert got[0] == step + number
        except BaseException as error:
            failures.append(error)

    everyone = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for each in everyone:
        each.start()
    for each in everyone:
        each.join()
    assert failures == []


def any_source():
    """Rank 0 takes what comes, then what a named rank has sent; other tags are not touched."""
    if RANK:
        for number in range(3):
            dist.send(torch.full((4,), 10.0 * RANK + number), 0)
        dist.send(torch.tensor(RANK), 0, tag=1)
        dist.send(torch.full((4,), -1.0 * RANK), 0)
        return
    came = {rank: [] for rank in range(1, SIZE)}
    for _ in range(3 * (SIZE - 1)):
        tensor = torch.zeros(4)
        source = dist.recv(tensor)
        came[source].append(tensor[0].item())
    for rank in came:
        assert came[rank] in ([10.0 * rank, 10.0 * rank + 1, 10.0 * rank + 2], [*came[rank][:3], -1.0 * rank])
    numbers = [torch.tensor(0) for _ in came]
    works = [dist.irecv(number, tag=1) for number in numbers]
    for work in works:
        work.wait()
    assert sorted(number.item() for number in numbers) == list(came)
    assert sorted(work.source_rank() for work in works) == list(came)
    for rank in came:
        if -1.0 * rank not in came[rank]:
            tensor = torch.zeros(4)
            dist.recv(tensor, rank)
            came[rank].append(tensor[0].item())


def events():
    """A store of this case."""
    return dist.PrefixStore(CASE, dist.distributed_c10d._get_default_store())


def late_sender():
    """A receive that found no sender in time does not keep later ones from finding it."""
    group = dist.new_group(list(range(SIZE)), timeout=2 * SECOND)
    tensor = torch.zeros(3)
    if RANK == LAST:
        events().wait(["tried"])
        work = dist.isend(torch.ones(3), 0, group)
        events().wait(["received"])
        work.wait(30 * SECOND)
        return
    one_line(gradbus.TimeoutError, ["GB-P110"], lambda: dist.recv(tensor, group=group))
    events().set("tried", "1")
    for _ in range(10):
        try:
            assert dist.recv(tensor, group=group) == LAST
        except gradbus.TimeoutError:
            continue
        break
    assert tensor.eq(1).all()
    events().set("received", "1")


def left_before():
    """Messages for a member that has left before the first one."""
    group = dist.new_group(list(range(SIZE)))
    if RANK == LAST:
        dist.destroy_process_group(group)
        events().set("left", "1")
        events().wait(["seen"])
        return
    events().wait(["left"])
    for call in (
        lambda: dist.send(torch.ones(3), LAST, group),
        lambda: dist.recv(torch.ones(3), LAST, group),
        lambda: dist.recv(torch.ones(3), group=group),
    ):
        one_line(gradbus.PeerLostError, ["GB-P105", f"rank {LAST}"], call)
    events().set("seen", "1")


def destroyed():
    """Messages that have not begun when their group ends."""
    group = dist.new_group(list(range(SIZE)))
    peer = (RANK + 1) % SIZE
    works = [dist.isend(torch.ones(3), peer, group, tag=RANK + 1), dist.irecv(torch.ones(3), peer, group, tag=RANK + 5)]
    future = dist.irecv(torch.ones(3), peer, group, tag=RANK + 9).get_future()
    if RANK == LAST:
        events().wait(["destroyed"])
    dist.destroy_process_group(group)
    for work in works:
        one_line(gradbus.ClosedError, ["destroyed before this operation ended"], work.wait)
    raises(RuntimeError, ["destroyed before this operation ended"], future.wait)
    events().set("destroyed", "1")


def listeners():
    """A thread of each rank waits for a message, and the others compute for longer than a deadlock may last."""
    got = torch.zeros(2)
    thread = threading.Thread(target=dist.recv, args=(got, (RANK - 1) % SIZE))
    late = dist.irecv(torch.zeros(2), (RANK - 1) % SIZE, tag=1)
    waiter = threading.Thread(target=late.wait)
    thread.start()
    waiter.start()
    time.sleep(DEADLOCK_S + 2)
    for tag in (0, 1):
        dist.send(torch.ones(2), (RANK + 1) % SIZE, tag=tag)
    thread.join()
    waiter.join()
    assert got.eq(1).all() and late.is_completed() and late.is_success()


def named():
    """Errors of a smaller group name its ranks, and those of the whole job."""
    group = dist.new_group([1, 2])
    if RANK == 0:
        return
    odd = int(RANK == LAST)
    words = ["GB-O903", "rank 0 (global rank 1)", "rank 1 (global rank 2)"]
    one_line(gradbus.MismatchError, words, lambda: dist.all_reduce(torch.ones(10 + odd), group=group))
    if RANK == LAST:
        dist.destroy_process_group(group)
        return
    left = ["GB-P105", "rank 1 (global rank 2)"]
    one_line(gradbus.PeerLostError, left, lambda: dist.recv(torch.ones(3), LAST, group))
    one_line(gradbus.PeerLostError, left, lambda: total(group))


init(seconds=60)
{
    "dies": dies, "leaves": leaves, "late": late, "differs": differs, "wrong": wrong, "again": again, "forks": forks,
    "unfinished": unfinished, "interrupted": interrupted, "threads": threads, "any_source": any_source,
    "late_sender": late_sender, "left_before": left_before, "destroyed": destroyed, "named": named,
    "listeners": listeners,
}[CASE]()  # fmt: skip
print("ok")

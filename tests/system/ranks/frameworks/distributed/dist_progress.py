"""Works that nobody waits for, in torch.distributed on gradbus: `dist_progress.py STORE CASE`.

Each case hangs or loses a result where operations advance only while their rank waits for them.
"""

import datetime
import sys
import threading
import time

import gradbus
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.nn.parallel import DistributedDataParallel
from torch_group import RANK, SIZE, init, raises

CASE = sys.argv[2]
LAST = SIZE - 1
SUM = SIZE * (SIZE + 1) / 2  # of rank + 1 over all ranks
SECOND = datetime.timedelta(seconds=1)


def store():
    """Of this case."""
    return dist.PrefixStore(CASE, dist.distributed_c10d._get_default_store())


def mine(count=3):
    """Another value on each rank."""
    return torch.full((count,), RANK + 1.0)


def until(condition):
    """Waits outside Gradbus."""
    deadline = time.monotonic() + 40
    while not condition():
        assert time.monotonic() < deadline, "this condition never came true"
        time.sleep(0.01)


def power_sgd():
    """Callbacks of torch's PowerSGD wait for futures of all-reduces that they start."""
    torch.manual_seed(1)
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    state = powerSGD_hook.PowerSGDState(None, 1, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    for step in range(5):
        model(torch.full((4, 64), float(RANK + step))).sum().backward()
    whole = [torch.empty_like(model.module.weight.grad) for _ in range(SIZE)]
    dist.all_gather(whole, model.module.weight.grad)
    assert all(each.equal(whole[0]) for each in whole)


def futures():
    """A callback waits for a future that it makes, and for one that was made before."""
    a, b, c = mine(3), mine(4), mine(5)

    def start_b(_):
        return dist.all_reduce(b, async_op=True).get_future().wait()

    dist.all_reduce(a, async_op=True).get_future().then(start_b).wait()
    assert a.eq(SUM).all() and b.eq(SUM).all()
    later = []
    ready = threading.Event()

    def wait_for_c(_):
        assert ready.wait(30)
        return later[0].wait()

    earlier, chained = dist.all_reduce(mine(6), async_op=True).get_future(), []
    # then() runs the callback itself if the future is complete.
    chain = threading.Thread(target=lambda: chained.append(earlier.then(wait_for_c)))
    chain.start()
    later.append(dist.all_reduce(c, async_op=True).get_future())
    ready.set()
    chain.join()
    chained[0].wait()
    assert c.eq(SUM).all()


def any_source_future():
    """A receive that stays open delays no other future."""
    got = torch.zeros(3)
    receive = dist.irecv(got, tag=3).get_future() if RANK == 0 else None
    total = mine()
    dist.all_reduce(total, async_op=True).get_future().wait()
    assert total.eq(SUM).all()
    if RANK == 0:
        store().set("total", "1")
    if RANK == LAST:
        store().wait(["total"])
        dist.send(mine(), 0, tag=3)
    if receive is not None:
        receive.wait()
        assert got.eq(LAST + 1).all()


def dropped():
    """Results of works that were not kept are there after a barrier, and after some time without one."""
    tensors = [mine(n + 1) for n in range(20)]
    for tensor in tensors:
        dist.all_reduce(tensor, async_op=True)
    dist.barrier()
    assert all(tensor.eq(SUM).all() for tensor in tensors)
    late, gathered = mine(7), torch.zeros(7 * SIZE)
    dist.all_reduce(late, async_op=True)
    dist.all_gather_into_tensor(gathered, mine(7), async_op=True)
    until(lambda: late.eq(SUM).all() and gathered[-1] == SIZE)
    last = mine(9)
    dist.all_reduce(last, async_op=True)
    dist.destroy_process_group()
    assert last.eq(SUM).all()


def dropped_error():
    """A barrier raises what a work failed with that nobody has looked at. Then the group works."""
    parts = [torch.zeros(2) for _ in range(SIZE)]
    dist.all_to_all(parts, [torch.ones(2 + int(RANK == LAST)) for _ in range(SIZE)], async_op=True)
    raises(gradbus.InvalidError, ["sent 3 elements", f"rank {LAST}"], dist.barrier)
    dist.barrier()


def unwaited():
    """Ranks advance operations of several rounds, and messages, while they wait elsewhere."""
    events, tensor = store(), torch.zeros(1000)
    if RANK == 0:
        work = dist.isend(torch.ones(1000), LAST)
        events.wait(["received"])
        work.wait()
    elif RANK == LAST:
        dist.recv(tensor, 0)
        assert tensor.eq(1).all()
        events.set("received", "1")
    parts = [torch.zeros(3) for _ in range(SIZE)]
    work = dist.all_gather(parts, mine(), async_op=True)
    if RANK == 0:
        events.wait(["gathered"])
    work.wait()
    if RANK == LAST:
        events.set("gathered", "1")
    assert [part[0].item() for part in parts] == [rank + 1.0 for rank in range(SIZE)]


def polled():
    """is_completed() comes true with the results, and at the deadline of a work that cannot end; wait() says why."""
    total = mine()
    work = dist.all_reduce(total, async_op=True)
    until(work.is_completed)
    assert total.eq(SUM).all() and work.get_future().done()
    group = dist.new_group(list(range(SIZE)), timeout=SECOND)
    if RANK == 0:
        for work in (dist.all_reduce(mine(), group=group, async_op=True), dist.irecv(mine(), LAST, group)):
            until(work.is_completed)
            assert not work.is_success()
            raises(gradbus.TimeoutError, ["GB-P110", " | next: "], work.wait)
        store().set("polled", "1")
    store().wait(["polled"])


def shared():
    """A group whose GPUs have another backend: torch wraps its works, and their errors stay as they are."""
    total = mine()
    work = dist.all_reduce(total, async_op=True)
    future = work.get_future()
    until(future.done)
    assert total.eq(SUM).all() and work.is_success()
    work.wait()
    assert not work.is_completed(), "torch forwards is_completed() now: the documentation says that it does not"
    model = DistributedDataParallel(torch.nn.Linear(3, 2))
    model(mine()).sum().backward()
    assert model.module.weight.grad.eq(SUM / SIZE).all()
    group = dist.new_group(list(range(SIZE)), timeout=SECOND)
    if RANK == 0:
        raises(gradbus.TimeoutError, ["GB-P110", " | next: "], lambda: dist.all_reduce(mine(), group=group))
        late = dist.all_reduce(mine(), group=group, async_op=True)
        until(late.get_future().done)
        raises(RuntimeError, ["GB-P110"], late.get_future().wait)
        store().set("late", "1")
    store().wait(["late"])


init("cpu:gradbus,cuda:gloo" if CASE == "shared" else "gradbus", seconds=40)
{
    "power_sgd": power_sgd, "futures": futures, "any_source_future": any_source_future, "dropped": dropped,
    "dropped_error": dropped_error, "unwaited": unwaited, "polled": polled,
    "shared": shared,
}[CASE]()  # fmt: skip
print("ok")

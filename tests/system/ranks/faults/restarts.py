"""One rank whose job goes on after agents were killed and started again (gradbus.elastic).

    restarts.py plain FOLDER             sums of integers; the state are Python's own values
    restarts.py steps MODE FOLDER        integers as gradients, in a sync mode
    restarts.py remembered FOLDER        top-k with a residual; prints what there is at the end
    restarts.py kept MODE NAME [CODEC] FOLDER  shards that step with that optimizer; prints the same
    restarts.py digits FOLDER            a small training with dropout, momentum and a schedule; the same
    restarts.py commits FOLDER           ranks that are a commit apart, or never made one
    restarts.py in_vain FOLDER           losses without end: how often the function is called
    restarts.py late FOLDER              one loss, after which several operations fail
    restarts.py pair FOLDER              a rank that hears of the loss by another one's leaving their process set
    restarts.py again FOLDER             init() after a failure and shutdown(), without gradbus.elastic

Each prints a line per step, waits before the last ones for FOLDER/finish, and ends with "ok".
"""

import contextlib
import hashlib
import pathlib
import re
import sys
import time

import gradbus.torch as gradbus
import torch
from two_parameters import NAMED, OPTIMIZERS, SHAPE, make, step

STEPS, EVERY, GATE = 60, 4, 50
COMPRESSED = (256, 128)  # large enough


def finished(state, folder):
    """Ends a step; whether it was the last."""
    state.step += 1
    if state.step % EVERY == 0:
        state.commit()
    print("step", state.step, flush=True)
    while state.step == GATE and not (folder / "finish").exists():
        time.sleep(0.002)  # the test has more to do
    return state.step == STEPS


def digest(*tensors):
    """Of all bits."""
    return hashlib.sha256(b"".join(t.detach().numpy().tobytes() for t in tensors)).hexdigest()


def plain(folder):
    @gradbus.elastic.run
    def count(state):
        while state.step < STEPS:
            mine = torch.tensor([(gradbus.rank() + 1) * (state.step + 1)])
            state.history.append(state.step)
            state.total += mine.item()  # a loss falls between this and the others' share
            state.total += (gradbus.allreduce(mine, op=gradbus.Sum, name="count") - mine).item()
            finished(state, folder)
        return state.total

    gradbus.init()
    state = gradbus.elastic.State(step=0, total=0, history=[])
    ranks = gradbus.size()
    assert count(state) == sum(range(1, STEPS + 1)) * sum(range(1, ranks + 1)), state.total
    assert state.history == list(range(STEPS)), state.history


def steps(mode, folder):
    """lr is 1; with ps:async each node's mean is a step, else that of all ranks."""

    @gradbus.elastic.run
    def train(state):
        while state.step < STEPS:
            step(parameters, torch.full(SHAPE, float(gradbus.rank() + 1 + state.step % 7)))
            if finished(state, folder):
                gradbus.flush()

    gradbus.init()
    weight, bias, optimizer = parameters = make(mode)
    model = torch.nn.ParameterList([weight, bias])
    train(gradbus.ElasticState(model=model, optimizer=optimizer, step=0))
    times = gradbus.cross_size() if mode.startswith("ps:async") else 1
    times *= 2 if "restore=1" in mode else 1  # it begins where a first run has ended
    means = sum((gradbus.size() + 1) / 2 + number % 7 for number in range(STEPS))
    assert torch.equal(weight.detach(), torch.full(SHAPE, -means * times)), (weight, means)
    assert torch.equal(bias.detach(), torch.full((3,), -float(STEPS * times)))


def remembered(folder):
    @gradbus.elastic.run
    def train(state):
        while state.step < STEPS:
            optimizer.zero_grad()
            generator = torch.Generator().manual_seed(state.step * 64 + gradbus.rank())
            (weight * torch.randn(COMPRESSED, generator=generator)).sum().backward()
            optimizer.step()
            finished(state, folder)

    gradbus.init()
    weight = torch.nn.Parameter(torch.zeros(COMPRESSED))
    optimizer = gradbus.DistributedOptimizer(
        torch.optim.SGD([weight], lr=1.0), [("weight", weight)],
        compression="topk:ratio=0.01,ef=residual", mode="sync")  # fmt: skip
    train(gradbus.ElasticState(model=torch.nn.ParameterList([weight]), optimizer=optimizer, step=0))
    residual = optimizer.compression_state()["residual"]["weight"]
    residual = gradbus.allreduce(residual, op=gradbus.Sum, name="residual")
    assert residual.abs().max() > 1
    print("end", digest(weight, residual))


def kept(mode, name, *rest):
    """Nodes make steps in turn, so their order is known; torch's own optimizer makes the same ones alone."""
    *codec, folder = rest

    @gradbus.elastic.run
    def train(state):
        while state.step < STEPS:
            if gradbus.cross_rank() == state.step % gradbus.cross_size():
                step(parameters, gradients[state.step])
            gradbus.barrier()
            finished(state, folder)

    gradbus.init()
    kind, options = OPTIMIZERS[name]
    shared = torch.Generator().manual_seed(3)
    gradients = torch.randn((STEPS, *SHAPE), generator=shared)
    weight, bias, optimizer = parameters = make(mode + NAMED.get(name, ""), 0.01, kind, *codec, **options)
    alone = [torch.nn.Parameter(torch.randn(SHAPE, generator=shared)), torch.nn.Parameter(torch.ones(3))]
    with torch.no_grad():
        weight.copy_(alone[0])
        bias.copy_(alone[1])
    model = torch.nn.ParameterList([weight, bias])
    train(gradbus.ElasticState(model=model, optimizer=optimizer, step=0))
    plain = kind(alone, lr=0.01, **options)
    for gradient in gradients:
        step((*alone, plain), gradient)
    gradbus.flush()
    remembered_of = optimizer.shard_state().keys()
    assert remembered_of == ({"weight", "bias"} if gradbus.rank() == 0 else set()), remembered_of
    for mine, wanted in zip((weight, bias), alone, strict=True):
        error = (mine - wanted).abs().max().item()
        assert codec or error < 2e-4, (name, error)
    print("end", digest(weight, bias))


def digits(folder):
    astray = 0

    @gradbus.elastic.run
    def train(state):
        nonlocal astray
        while state.step < STEPS:
            if state.step % EVERY == 2 and astray < 3:
                astray += 1
                state.restore()
            rows = torch.randint(0, len(images), (8,))  # other ones on each rank
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(images[rows]), labels[rows])
            loss.backward()
            optimizer.step()
            scheduler.step()
            finished(state, folder)

    gradbus.init()
    torch.manual_seed(gradbus.rank())
    shared = torch.Generator().manual_seed(1)
    images = torch.randn((200, 64), generator=shared)
    labels = torch.randint(0, 10, (200,), generator=shared)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 32), torch.nn.BatchNorm1d(32), torch.nn.Dropout(0.2), torch.nn.Linear(32, 10))  # fmt: skip
    optimizer = gradbus.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model.named_parameters()
    )
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 7, 0.8)
    state = gradbus.ElasticState(model=model, optimizer=optimizer, scheduler=scheduler, step=0)
    train(state)
    print("end", digest(*model.state_dict().values()), digest(*model.parameters()), scheduler.get_last_lr())


def commits(_):
    """The barrier of a commit as one rank sees it that is lost in it, or has just passed it."""

    def commit(passes, call=None):
        def barrier():
            if not passes:
                raise gradbus.PeerLostError("GB-P104")

        real, gradbus.elastic.barrier = gradbus.elastic.barrier, barrier
        with contextlib.suppress(gradbus.PeerLostError):
            (call or state.commit)()
        gradbus.elastic.barrier = real

    def go_back():
        state._after_loss = True  # as after a loss
        state.sync()

    gradbus.init()
    rank = gradbus.rank()
    state = gradbus.elastic.State(value=[rank + 5])
    state.sync()
    assert state.value == [5] and state._common == 0
    for number in (1, 2):
        state.value = [10 * number + rank]
        if rank == 0:  # which has the next one, the others have not
            commit(False)
        go_back()
        assert state.value == [5] and state._common == 0, state.value
    state.value.append(rank)
    commit(rank == 0)  # which has only the new one, the others both
    state.value.append(7)
    go_back()
    assert state.value == [5, rank] and state._common == 1, state.value
    state.value.append(7)
    state.restore()
    assert state.value == [5, rank], state.value
    if rank == 1:
        kept, state = state, gradbus.elastic.State(value=[3])
    try:
        if rank == 1:
            state.sync()  # a new process
        else:
            go_back()
    except gradbus.MismatchError as error:
        assert error.id == "M005" and "rank 1 has no commit, rank 0 goes back to 1" in str(error), error
    else:
        raise AssertionError("a process without a commit was taken")
    state = kept if rank == 1 else state
    state._after_loss = False
    state.value = [8 + rank]
    commit(False, state.sync)  # a second start, that is lost
    if rank > 0:
        state._kept.clear()  # here before the commit
    go_back()
    assert state.value == [8] and state._common == 1, (state.value, state._common)


def in_vain(_):
    calls = []

    @gradbus.elastic.run(restarts_max=3)
    def lose(state):
        calls.append(state._common)
        if len(calls) == 2:
            state.commit()  # counting begins anew
        raise gradbus.PeerLostError("GB-P104 NODE_LOST: a test")

    try:
        lose(gradbus.elastic.State())
    except gradbus.PeerLostError:
        assert calls == [0, 0, 1, 1, 1], calls
    else:
        raise AssertionError("no error")
    try:
        lose([])
    except gradbus.InvalidError as error:
        assert "the first argument is a list" in str(error), error


class Late(gradbus.elastic.State):
    """After a loss, its first operations fail so many times, as they do while the network is cut."""

    failures = 0

    def sync(self):
        if self._after_loss and self.failures:
            self.failures -= 1
            raise gradbus.PeerLostError("GB-P102 LINK_LOST: a test")
        super().sync()


def late(_):
    calls = []

    @gradbus.elastic.run(restarts_max=1)
    def lose_once(state):
        calls.append(state._common)
        if len(calls) == 1:
            raise gradbus.PeerLostError("GB-P104 NODE_LOST: a test")

    state = Late()
    state.failures = 3
    lose_once(state)
    assert len(calls) == 2 and state.failures == 0, (calls, state.failures)

    @gradbus.elastic.run(timeout=2)
    def lose_for_ever(state):
        state.failures = 1000
        raise gradbus.PeerLostError("GB-P104 NODE_LOST: the first")

    begun = time.monotonic()
    try:
        lose_for_ever(state)
    except gradbus.TimeoutError as error:
        # On a busy machine an attempt may end in the middle, while it waits for the other ranks.
        told = r"loss: GB-P104 NODE_LOST: the first; the last answer: GB-(P102|J404)"
        assert re.search(told, str(error)), error
    assert time.monotonic() - begun < 10 and 0 < state.failures < 1000, state.failures


def pair(_):
    calls = 0

    @gradbus.elastic.run
    def train(state):
        nonlocal calls
        calls += 1
        print("step", calls, flush=True)
        if calls > 1:
            return
        if gradbus.rank() == 0:  # rank 1 does not come
            gradbus.allreduce(torch.ones(3), op=gradbus.Sum, name="pair", process_set=two)
        else:
            gradbus.barrier()  # rank 0 does not come
        raise AssertionError("nobody was lost")

    two = gradbus.ProcessSet([0, 1])
    gradbus.init(process_sets=[two])
    train(gradbus.elastic.State(step=0))
    assert calls == 2


def again(folder):
    """As a program in C does it: after an error shutdown(), and init() until it is no more refused."""
    gradbus.init()
    for _ in range(3):
        sums, last = 0, False
        try:
            while not last:
                mine = torch.ones(30_000)
                mine[0] = gradbus.rank() == 0 and (folder / "finish").exists()
                result = gradbus.allreduce(mine, op=gradbus.Sum, name="again")
                assert result[-1] == gradbus.size()
                sums, last = sums + 1, bool(result[0])
                print("step", sums, flush=True)
        except gradbus.GradbusError as problem:
            print("lost", problem.id, flush=True)
        else:
            return
        gradbus.shutdown()
        deadline = time.monotonic() + 60
        while not gradbus.is_initialized():
            try:
                gradbus.init()
            except (gradbus.UnavailableError, gradbus.PeerLostError):
                assert time.monotonic() < deadline
                time.sleep(0.02)
    raise AssertionError("lost three times")


if __name__ == "__main__":
    what, *words, where = sys.argv[1:]
    try:
        globals()[what](*words, pathlib.Path(where))
    except gradbus.GradbusError as error:
        print(type(error).__name__, error, flush=True)
        sys.exit(3)
    print("ok")

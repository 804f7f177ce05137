"""A rank: what elastic scripts for Horovod do without the loss of an agent: several calls, subclasses, own errors."""

import sys

import gradbus
import gradbus.horovod.torch as hvd
import torch
from gradbus.horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt


class Noting(hvd.elastic.TorchState):
    """Has methods that Horovod calls by themselves."""

    def __init__(self, **values):
        self.calls = []
        super().__init__(**values)

    def save(self):
        self.calls.append("save")
        super().save()

    def restore(self):
        self.calls.append("restore")
        super().restore()

    def reset(self):
        self.calls.append("reset")

    def check_host_updates(self):
        self.calls.append("check")


def a_state(kind=hvd.elastic.TorchState, **values):
    """Its model loses 1 in each step."""
    model = torch.nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(100.0 + hvd.rank())
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters())
    return kind(model=model, optimizer=optimizer, epoch=0, **values)


def step(state):
    state.optimizer.zero_grad()
    state.model.weight.sum().backward()
    state.optimizer.step()
    state.epoch += 1


def weight(state):
    return state.model.weight.item()


def several_calls():
    """Each goes on with the values of rank 0, as they are then. These names are those of Horovod's own programs."""
    state, resets = a_state(commits=0, rendezvous=0), []
    state.register_reset_callbacks([lambda: resets.append(state.epoch)])
    train = hvd.elastic.run(step)
    for number in (1, 2, 3):
        train(state)
        assert (weight(state), state.epoch) == (100 - number, number), weight(state)
    if hvd.rank() == 0:  # which has found a checkpoint
        state.epoch = 7
        with torch.no_grad():
            state.model.weight.fill_(50.0)
    train(state)
    assert (weight(state), state.epoch, resets) == (49.0, 8, []), weight(state)
    state.restore()
    assert (weight(state), state.epoch) == (50.0, 7), weight(state)


def methods_of_subclasses():
    state = a_state(Noting)

    @hvd.elastic.run
    def train(state):
        state.commit()
        step(state)
        state.restore()

    train(state)
    assert state.calls == ["save", "save", "check", "restore"] and weight(state) == 100, state.calls


def errors_of_the_function():
    state, seen = a_state(Noting), []
    state.register_reset_callbacks([lambda: seen.append("callback")])

    @hvd.elastic.run
    def train(state):
        seen.append((weight(state), state.epoch))
        if len(seen) == 1:
            step(state)
            state.commit()
            step(state)
            state.model.weight.sum().backward()
            raise HorovodInternalError("of a library")
        if len(seen) == 3:
            step(state)
            state.extra = 1
            raise HostsUpdatedInterrupt()
        if len(seen) == 5:
            raise HostsUpdatedInterrupt(skip_sync=True)
        return "done"

    assert train(state) == "done"
    assert seen == [(100, 0), "callback", (99, 1), "callback", (98, 2), "callback", (98, 2)], seen
    assert state.calls == ["save", "save", "check", "restore", "reset", "reset", "save", "reset"], state.calls


def an_optimizer_of_a_process_set():
    """Ranks outside of the set have a plain one."""
    some = hvd.add_process_set([0, 2])
    weight = torch.nn.Parameter(torch.zeros(1))
    plain = torch.optim.SGD([weight], lr=1.0, momentum=0.5)
    if hvd.rank() == 0:
        plain.state[weight]["momentum_buffer"] = torch.ones(1)
    state = hvd.elastic.TorchState(None, hvd.DistributedOptimizer(plain, process_set=some))

    @hvd.elastic.run
    def train(state):
        assert plain.state[weight]["momentum_buffer"].item() == 1
        weight.sum().backward()
        plain.step()
        state.restore()

    train(state)
    assert plain.state[weight]["momentum_buffer"].item() == 1


def an_error_that_never_ends():
    calls = []

    @hvd.elastic.run(restarts_max=2)
    def train(state):
        calls.append(1)
        raise HorovodInternalError("again")

    try:
        train(a_state())
    except HorovodInternalError as error:
        assert str(error) == "again" and len(calls) == 3, (error, calls)
    else:
        raise AssertionError("no error")


def an_error_of_one_rank():
    @hvd.elastic.run(timeout=1.0)
    def train(state):
        if hvd.rank() == 1:
            raise HorovodInternalError("here only")
        hvd.allreduce(torch.ones(1), name="elsewhere")

    try:
        train(a_state())
    except gradbus.TimeoutError as error:
        assert "rank 1" in str(error) and "not all ranks" in str(error), error
    except gradbus.MismatchError as error:  # ranks have waited for different operations for too long
        assert "elastic/raised" in str(error), error
    except gradbus.PeerLostError:
        assert hvd.rank() != 1  # which has left
    else:
        raise AssertionError("no error")


hvd.init()
several_calls()
methods_of_subclasses()
errors_of_the_function()
an_error_that_never_ends()
if hvd.size() > 2:
    an_optimizer_of_a_process_set()
if hvd.size() > 1:
    an_error_of_one_rank()
print("ok")
sys.stdout.flush()

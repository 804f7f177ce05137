"""A rank: the state of a DistributedOptimizer(shard=True), given and taken in the ways of torch and of Horovod."""

import copy

import gradbus.torch as gradbus
import pytest
import torch

gradbus.init()
RANK, SIZE = gradbus.rank(), gradbus.size()
HOOKS = hasattr(torch.optim.Optimizer, "register_load_state_dict_pre_hook")
STEPS = 3


def make_model():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))


def sharded(model):
    return gradbus.DistributedOptimizer(
        torch.optim.Adam(model.parameters(), lr=0.01), model.named_parameters(), shard=True
    )


def plain(model):
    return torch.optim.Adam(model.parameters(), lr=0.01)


def train(model, optimizer, steps, rank=RANK):
    """``rank``: whose data; None: that of all ranks."""
    for step in steps:
        data = torch.randn(SIZE, 5, 8, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        model(data if rank is None else data[rank]).square().mean().backward()
        optimizer.step()


def trained(make=sharded, rank=RANK):
    model = make_model()
    optimizer = make(model)
    train(model, optimizer, range(STEPS), rank)
    return model, optimizer


def check_goes_on(change=lambda model, optimizer: None, change_alone=lambda model, optimizer: None):
    """``change`` of a sharded optimizer between two steps has the result of ``change_alone`` in one process."""
    model, optimizer = trained()
    change(model, optimizer)
    train(model, optimizer, range(STEPS, 2 * STEPS))
    alone, reference = trained(plain, rank=None)
    change_alone(alone, reference)
    train(alone, reference, range(STEPS, 2 * STEPS), rank=None)
    for mine, one in zip(model.parameters(), alone.parameters()):
        assert torch.allclose(mine, one, rtol=0, atol=1e-5), (mine - one).abs().max()


def names_as_ids(model, optimizer):
    """As torch.distributed.checkpoint passes them."""
    state = copy.deepcopy(optimizer.state_dict())
    names = [name for name, _ in model.named_parameters()]
    state["state"] = {names[number]: one for number, one in state["state"].items()}
    state["param_groups"][0]["params"] = names
    optimizer.load_state_dict(state)
    assert len(optimizer.state_dict()["state"]) == len(names)


def distributed_checkpoint(model, optimizer):
    from torch.distributed.checkpoint import state_dict as functions

    state = copy.deepcopy(functions.get_optimizer_state_dict(model, optimizer))
    functions.set_optimizer_state_dict(model, optimizer, state)
    assert len(optimizer.state_dict()["state"]) == len(list(model.parameters()))


def broadcast_between_steps(model, optimizer):
    optimizer.param_groups[0]["lr"] = 0.01 * (1 + RANK)
    before = optimizer.shard_bytes()
    gradbus.broadcast_optimizer_state(optimizer, root_rank=0)
    assert optimizer.param_groups[0]["lr"] == 0.01 and optimizer.shard_bytes() == before


def load_with_hooks(model, optimizer):
    """They see the whole state, and may change it."""
    state, seen = copy.deepcopy(optimizer.state_dict()), []

    def before(_, given):
        given = copy.deepcopy(given)
        seen.append(len(given["state"]))
        for one in given["state"].values():
            one["exp_avg_sq"].mul_(4)
        return given

    optimizer.register_load_state_dict_pre_hook(before)
    optimizer.register_load_state_dict_post_hook(lambda its: seen.append(len(its.state) > 0))
    optimizer.load_state_dict(state)
    assert seen == [4, True], seen


def check_hooks_of_state_dict():
    _, optimizer = trained()
    seen = []

    def after(_, state):
        seen.append(len(state["state"]))
        return {**state, "note": "changed"}

    optimizer.register_state_dict_pre_hook(lambda its: seen.append(its is optimizer))
    optimizer.register_state_dict_post_hook(after)
    assert optimizer.state_dict()["note"] == "changed" and seen == [True, 4], seen


def check_states_of_nobody():
    _, optimizer = trained()
    state = copy.deepcopy(optimizer.state_dict())
    state["state"]["stray"] = state["state"].pop(0)
    with pytest.raises(gradbus.InvalidError, match=r"the state of 'stray' .* \| next: "):
        optimizer.load_state_dict(state)
    assert len(optimizer.state_dict()["state"]) == 4


def check_one_rank_loads():
    """It has kept its share alone: no broadcast brings the others theirs."""
    alone, reference = trained(plain, rank=None)
    for broadcasts in (False, True):
        model = make_model()
        optimizer = sharded(model)
        if RANK == 0:
            optimizer.load_state_dict(reference.state_dict())
        with pytest.raises(gradbus.MismatchError, match=r"the optimizer's state of .* call load_state_dict\(\)"):
            gradbus.broadcast_optimizer_state(optimizer) if broadcasts else train(model, optimizer, [0])
    optimizer.zero_grad()
    model.load_state_dict(alone.state_dict())
    optimizer.load_state_dict(reference.state_dict())  # now on all ranks
    gradbus.broadcast_optimizer_state(optimizer)
    train(model, optimizer, [STEPS])
    train(alone, reference, [STEPS], rank=None)
    for mine, one in zip(model.parameters(), alone.parameters()):
        assert torch.allclose(mine, one, rtol=0, atol=1e-5), (mine - one).abs().max()


def check_another_process_set():
    _, optimizer = trained()
    some = gradbus.add_process_set(list(range(SIZE - 1)))
    with pytest.raises(gradbus.InvalidError, match="process_set= of the optimizer"):
        gradbus.broadcast_optimizer_state(optimizer, process_set=some)
    gradbus.remove_process_set(some)


check_goes_on(names_as_ids)
check_goes_on(broadcast_between_steps)
check_states_of_nobody()
check_one_rank_loads()
check_another_process_set()
if HOOKS:
    check_goes_on(distributed_checkpoint)
    check_goes_on(load_with_hooks, load_with_hooks)
    check_hooks_of_state_dict()
gradbus.barrier()
print("ok")

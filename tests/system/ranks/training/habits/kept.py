"""One rank that keeps gradients, states or options of its optimizer across steps that are put off.

    kept.py          prints how many steps were put off without such habits, and "ok"

Each habit is a training whose losses are linear in a factor of each rank. One process with the mean of these factors
has the same gradients, so all that the habit sees and makes must be the same.
"""

import time

import gradbus.torch as gradbus
import torch

STEPS = 5


def nothing(_kept, _optimizer, _parameters):
    return ()


def read_gradients(kept, _optimizer, parameters):
    gradients = kept.setdefault("gradients", [p.grad for p in parameters])
    return [gradient.clone() for gradient in gradients]


def halve_data_of_gradients(kept, _optimizer, parameters):
    for gradient in kept.setdefault("gradients", [p.grad.data for p in parameters]):
        gradient.mul_(0.5)
    return ()


def halve_arrays_of_gradients(kept, _optimizer, parameters):
    for gradient in kept.setdefault("gradients", [p.grad.numpy() for p in parameters]):
        gradient *= 0.5
    return ()


def read_momentum(kept, optimizer, parameters):
    return [kept.setdefault("momentum", optimizer.state[parameters[0]]["momentum_buffer"]).clone()]


def clear_momentum(kept, optimizer, parameters):
    for momentum in kept.setdefault("momentum", [optimizer.state[p]["momentum_buffer"] for p in parameters]):
        momentum.zero_()
    return ()


def replace_momentum(kept, optimizer, parameters):
    for state in kept.setdefault("states", [optimizer.state[p] for p in parameters]):
        state["momentum_buffer"] = torch.ones_like(state["momentum_buffer"])
    return ()


def clear_state(kept, optimizer, _parameters):
    kept.setdefault("state", optimizer.state).clear()
    return ()


def change_betas(kept, optimizer, _parameters):
    optimizer.param_groups[0]["betas"][0].mul_(0.5)
    return ()


def hook_late(kept, optimizer, _parameters):
    if "hook" not in kept:
        calls = kept["calls"] = []
        kept["hook"] = optimizer.register_step_post_hook(lambda *_: calls.append(1))
    return [torch.tensor([len(kept["calls"])])]


def momentum_of(parameters):
    return torch.optim.SGD(parameters, 0.25, momentum=0.9)


def adam_of(parameters):
    betas = (torch.tensor(0.9), torch.tensor(0.999))
    return torch.optim.Adam(parameters, torch.tensor(0.1), betas=betas, capturable=False, foreach=False)


# {habit: (when, the optimizer)}
HABITS = {
    nothing: ("after step", momentum_of),
    read_gradients: ("after backward", momentum_of),
    halve_data_of_gradients: ("after backward", momentum_of),
    halve_arrays_of_gradients: ("after backward", momentum_of),
    read_momentum: ("after step", momentum_of),
    clear_momentum: ("after step", momentum_of),
    replace_momentum: ("after step", momentum_of),
    clear_state: ("after step", momentum_of),
    change_betas: ("after step", adam_of),
    hook_late: ("after step", momentum_of),
}


def train(habit, factor, is_distributed):
    """(parameters, what the habit saw, how many steps were put off)"""
    when, optimizer_of = HABITS[habit]
    parameters = [torch.nn.Parameter(torch.arange(1.0, 5.0)), torch.nn.Parameter(torch.ones(3))]
    optimizer = optimizer_of(parameters)
    if is_distributed:
        optimizer = gradbus.DistributedOptimizer(optimizer, named_parameters=list(zip("pq", parameters)))
    kept, seen, put_off = {}, [], 0
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=False)
        if is_distributed:
            time.sleep(0.03 * gradbus.rank())
        p, q = parameters
        ((p * p * (step + 1)).sum() * factor + (q * q).sum() * factor).backward()
        if when == "after backward":
            seen += habit(kept, optimizer, parameters)
        optimizer.step()
        if is_distributed:
            put_off += optimizer._gradbus.exchange.deferred.is_stepped
        if when == "after step":
            seen += habit(kept, optimizer, parameters)
    return [p.detach().clone() for p in parameters], seen, put_off


gradbus.init()
mean = (gradbus.size() + 1) / 2
for habit in HABITS:
    expected, expected_seen, _ = train(habit, mean, False)
    found, found_seen, put_off = train(habit, gradbus.rank() + 1.0, True)
    for one, other in zip([*expected, *expected_seen], [*found, *found_seen], strict=True):
        torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-5, msg=lambda text, h=habit: f"{h.__name__}: {text}")
    if habit is nothing:
        print("put off", put_off)
gradbus.shutdown()
print("ok")

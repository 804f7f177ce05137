"""What a script does to an optimizer and its parameters where shards step, as one rank sees it.

    edited_optimizers.py groups MODE        each parameter has the learning rate of its group, wherever that is
    edited_optimizers.py split_group MODE   parameters that are exchanged together want one learning rate
    edited_optimizers.py options MODE       those that shards know are not changed later, and the learning rate is
    edited_optimizers.py written MODE       parameters that a script writes between steps
    edited_optimizers.py dropped MODE       zero_grad() in the place of step()
    edited_optimizers.py scaled MODE        a gradient scaler, which shards do not see
    edited_optimizers.py other_classes MODE   one rank: subclasses and options of which shards know nothing
"""

import functools
import inspect
import sys

import gradbus.torch as gradbus
import numpy
import torch


def refused(call, kind, *words):
    """The error with these words."""
    try:
        call()
    except kind as error:
        assert all(word in str(error) for word in words), (words, str(error))
    else:
        raise AssertionError(f"was accepted, without {words}")


def backward(parameters, optimizer, factor=1.0):
    optimizer.zero_grad()
    (factor * sum(parameter.sum() for parameter in parameters)).backward()


def step(parameters, optimizer, factor=1.0):
    backward(parameters, optimizer, factor)
    optimizer.step()


def three(mode, kind=torch.optim.SGD, **options):
    """Each parameter has a group."""
    parameters = [torch.nn.Parameter(torch.zeros(4)) for _ in range(3)]
    groups = [{"params": [p], "lr": rate} for p, rate in zip(parameters, (1.0, 0.25, 0.5))]
    named = [(f"p{number}", p) for number, p in enumerate(parameters)]
    return parameters, gradbus.DistributedOptimizer(kind(groups, lr=1.0, **options), named, mode=mode)


def first_of(parameters):
    return [parameter[0].item() for parameter in parameters]


def groups(mode):
    nodes = gradbus.cross_size()
    for edit in (list.reverse, lambda groups: groups.pop(0)):
        parameters, optimizer = three(mode)
        step(parameters, optimizer)
        edit(optimizer.param_groups)
        step(parameters[1:], optimizer)
        optimizer.flush()
        assert first_of(parameters) == [-1.0 * nodes, -0.5 * nodes, -1.0 * nodes], first_of(parameters)


def split_group(mode):
    parameters = [torch.nn.Parameter(torch.zeros(4)) for _ in range(2)]
    plain = torch.optim.SGD(parameters, lr=1.0)
    optimizer = gradbus.DistributedOptimizer(plain, [("a", parameters[0]), ("b", parameters[1])], mode=mode)
    step(parameters, optimizer)
    (whole,) = optimizer.param_groups
    optimizer.param_groups = [{**whole, "params": [parameter]} for parameter in parameters]
    step(parameters, optimizer)
    optimizer.param_groups[1]["lr"] = 0.5
    refused(lambda: step(parameters, optimizer), gradbus.InvalidError, "'a'", "'b'", "learning rates", "0.5")
    optimizer.param_groups[1]["lr"] = 1.0
    step(parameters, optimizer)
    optimizer.flush()
    assert first_of(parameters) == [-3.0 * gradbus.cross_size()] * 2, first_of(parameters)


def options(mode):
    schedules = torch.optim.lr_scheduler
    sgd = functools.partial(torch.optim.SGD, momentum=0.9)
    for kind, changes, option in (
        (sgd, lambda o: schedules.OneCycleLR(o, 0.1, total_steps=9), "momentum"),
        (sgd, lambda o: schedules.CyclicLR(o, 0.01, 0.1).step(), "momentum"),
        (torch.optim.Adam, lambda o: schedules.OneCycleLR(o, 0.1, total_steps=9), "betas"),
        (torch.optim.Adam, lambda o: o.param_groups[1].update(amsgrad=True), "amsgrad"),
        (sgd, lambda o: o.param_groups[2].update(weight_decay=0.5), "weight_decay"),
        (sgd, with_other_state, "nesterov"),
    ):
        parameters, optimizer = three(mode, kind)
        step(parameters, optimizer)
        kept = [dict(group) for group in optimizer.param_groups]
        changes(optimizer)
        before = first_of(parameters)
        refused(lambda: step(parameters, optimizer), gradbus.InvalidError, f"{option} of", "cycle_momentum=False")  # noqa: B023
        for group, was in zip(optimizer.param_groups, kept):
            group.update(was)
        optimizer.flush()  # nothing was sent
        assert gradbus.cross_size() > 1 or first_of(parameters) == before, (first_of(parameters), before)
        step(parameters, optimizer)
    optimizer.load_state_dict(optimizer.state_dict())
    schedule = schedules.OneCycleLR(optimizer, 0.1, total_steps=9, cycle_momentum=False)
    for _ in range(3):
        step(parameters, optimizer)
        schedule.step()


def with_other_state(optimizer):
    state = optimizer.state_dict()
    for group in state["param_groups"]:
        group["nesterov"] = True
    optimizer.load_state_dict(state)


def written(mode):
    """Refused by name; load_shard_state() and gradbus.state() make it right, whatever shards remember."""
    nodes = gradbus.cross_size()
    for kind in (torch.optim.SGD, functools.partial(torch.optim.SGD, momentum=0.5), torch.optim.Adam):
        parameters, optimizer = three(mode, kind)
        for group in optimizer.param_groups:
            group["lr"] = 1.0
        step(parameters, optimizer)
        optimizer.flush()
        saved = [parameter.detach().clone() for parameter in parameters]
        state = gradbus.state(optimizer).state_dict()
        ends = []
        for _ in range(2):
            step(parameters, optimizer, 2.0)
            optimizer.flush()
            ends.append(first_of(parameters))
            with torch.no_grad():
                for parameter, was in zip(parameters, saved):
                    parameter.copy_(was)
            refused(lambda: step(parameters, optimizer), gradbus.InvalidError, "written", "load_shard_state({})")  # noqa: B023
            optimizer.zero_grad()
            gradbus.state(optimizer).load_state_dict(state)
        assert numpy.allclose(*ends), (kind, ends)
        if kind is torch.optim.SGD:
            with torch.no_grad():
                for parameter in parameters:
                    parameter.fill_(7.0 + gradbus.rank())  # rank 0's counts
            optimizer.load_shard_state({})
            gradbus.barrier()  # a fast node's next step would be in what the other one gets
            assert first_of(parameters) == [7.0] * 3, first_of(parameters)
            step(parameters, optimizer)
            optimizer.flush()
            assert first_of(parameters) == [7.0 - nodes] * 3, first_of(parameters)


def dropped(mode):
    """Not what shards have; accumulated gradients that were not sent are dropped."""
    for passes in (1, 2):
        parameters = [torch.nn.Parameter(torch.zeros(4))]
        plain = torch.optim.SGD(parameters, lr=1.0)
        optimizer = gradbus.DistributedOptimizer(
            plain, [("w", parameters[0])], backward_passes_per_step=passes, mode=mode
        )
        optimizer.zero_grad()
        for _ in range(passes):
            parameters[0].sum().backward()
        optimizer.step()
        for _ in range(passes - 1):
            backward(parameters, optimizer, 100.0)
        optimizer.zero_grad()
        for _ in range(passes):
            parameters[0].sum().backward()
        refused(optimizer.zero_grad, gradbus.BusyError, "shards have them", "call step()")
        optimizer.step()
        optimizer.flush()
        assert first_of(parameters) == [-2.0 * passes * gradbus.cross_size()], (passes, first_of(parameters))


def scaled(mode):
    for unscales in (False, True):
        parameters, optimizer = three(mode)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        for _ in range(2):
            backward(parameters, optimizer)
            optimizer.step()
        optimizer.zero_grad()
        scaler.scale(sum(parameter.sum() for parameter in parameters)).backward()
        if unscales:
            scaler.unscale_(optimizer)
        refused(lambda: scaler.step(optimizer), gradbus.InvalidError, "gradient scaler", "bfloat16")  # noqa: B023
        optimizer.step()
        step(parameters, optimizer)
        off = torch.amp.GradScaler("cpu", enabled=False)
        backward(parameters, optimizer)
        off.step(optimizer)


class OwnStep(torch.optim.SGD):
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad.sign_()
        return super().step(closure)


class Renamed(torch.optim.SGD):
    """Steps as torch's."""


def other_classes(mode):
    """One rank: what shards cannot do is refused by name, and a subclass without a step() of its own is not."""
    refused(lambda: three(mode, OwnStep), gradbus.InvalidError, "OwnStep has a step() of its own", "optimizer=adam")
    refused(lambda: three(mode, torch.optim.RMSprop), gradbus.InvalidError, "shards have no RMSprop")
    refused(lambda: three(mode, maximize=True), gradbus.InvalidError, "without maximize=True")
    refused(lambda: three(mode, torch.optim.Adam, amsgrad=True), gradbus.InvalidError, "without amsgrad=True")
    as_torch(mode, Renamed, momentum=0.9)
    if "decoupled_weight_decay" in inspect.signature(torch.optim.Adam).parameters:
        as_torch(mode, torch.optim.Adam, weight_decay=0.5, decoupled_weight_decay=True)


def as_torch(mode, kind, **options):
    parameters, optimizer = three(mode, kind, **options)
    alone = [torch.nn.Parameter(torch.ones(4)) for _ in parameters]
    with torch.no_grad():
        for parameter in parameters:
            parameter.fill_(1.0)
    plain = kind([{**group, "params": [p]} for group, p in zip(optimizer.param_groups, alone)], **options)
    for factor in (1.0, -2.0, 0.5):
        step(parameters, optimizer, factor)
        step(alone, plain, factor)
    for parameter, wanted in zip(parameters, alone):
        assert torch.allclose(parameter, wanted, atol=1e-5), (kind, parameter, wanted)


def main():
    gradbus.init()
    commands = [groups, split_group, options, written, dropped, scaled, other_classes]
    {command.__name__: command for command in commands}[sys.argv[1]](*sys.argv[2:])
    gradbus.shutdown()
    print("ok")


if __name__ == "__main__":
    main()

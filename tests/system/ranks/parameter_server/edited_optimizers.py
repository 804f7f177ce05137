"""What a script does to an optimizer and its parameters where shards step, as one rank sees it.

    edited_optimizers.py groups MODE        each parameter has the learning rate of its group, wherever that is
    edited_optimizers.py split_group MODE   parameters that are exchanged together want one learning rate
"""

import sys

import gradbus.torch as gradbus
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


def main():
    gradbus.init()
    commands = [groups, split_group]
    {command.__name__: command for command in commands}[sys.argv[1]](*sys.argv[2:])
    gradbus.shutdown()
    print("ok")


if __name__ == "__main__":
    main()

"""A rank: exceptions at any line of a step that was put off. Nothing is stepped twice, and what is torn is told."""

import copy
import sys

import gradbus.torch as gradbus
import torch
from gradbus.torch._exchange.deferred import Deferred
from gradbus.torch._exchange.holders import sees_all_readers
from training_cases import mlp, step

X, Y = torch.ones(4, 6), torch.ones(4, 3)  # the same on all ranks, so their mean is, too
NAMES = ("_end_here", "_step_on", "_step_once")
CODES = {getattr(Deferred, name).__code__ for name in NAMES if hasattr(Deferred, name)}


class Failing(torch.optim.SGD):
    """When it is told so, after a step in which no error would be seen."""

    steps_each_parameter_alone = True
    fails = False

    def step(self, closure=None):
        super().step(closure)
        if self.fails and any(group["params"] for group in self.param_groups):
            Failing.fails = False
            raise ValueError("as it was told")


def new():
    torch.manual_seed(3)
    model = mlp()
    return model, Failing(model.parameters(), 0.1, momentum=0.9)


def after_each_step(count):
    model, optimizer = new()
    yield copy.deepcopy(model)
    for _ in range(count):
        step(model, optimizer, X, Y)
        yield copy.deepcopy(model)


EXPECTED = list(after_each_step(3))


def steps_of(model):
    """How many each parameter has got; -1 for none of these numbers."""
    return [next((n for n, one in enumerate(EXPECTED) if torch.allclose(dict(one.named_parameters())[name], p)), -1)
            for name, p in copy.deepcopy(model).named_parameters()]  # fmt: skip


def is_interrupted(line, call):
    """KeyboardInterrupt comes when so many lines of Deferred have begun."""
    left = [line]

    def trace(frame, event, _):
        if frame.f_code in CODES and event == "line":
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
        return trace if frame.f_code in CODES else None

    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
        torch.set_grad_enabled(True)  # an exception as a with statement ends leaves it off, in all programs
    return False


def prepared():
    """Two steps were made, and the second one put off."""
    model, optimizer = new()
    optimizer = gradbus.DistributedOptimizer(optimizer, model.named_parameters(), bucket_bytes=400)
    step(model, optimizer, X, Y)
    step(model, optimizer, X, Y)
    return model, optimizer


def is_refused(call):
    try:
        call()
    except gradbus.BusyError as error:
        assert "gave up a step" in str(error), error
        return True
    return False


def check_line(line, zeroes):
    """Whether there is such a line, and whether the step was torn."""
    model, optimizer = prepared()
    if zeroes:
        optimizer.zero_grad()
    if not is_interrupted(line, lambda: model(X)):
        assert steps_of(model) == [2] * 6
        return False, False
    found = steps_of(model)
    torn = is_refused(optimizer.zero_grad)
    assert found == [2] * 6 or torn and set(found) == {1, 2}, (line, zeroes, found, torn)
    if not torn:
        step(model, optimizer, X, Y)
        optimizer.flush()
        assert steps_of(model) == [3] * 6, (line, zeroes, steps_of(model))
    return True, torn


def check_lines(zeroes):
    results = []
    while not results or results[-1][0] and len(results) < 45:  # those of two buckets
        results.append(check_line(len(results) + 1, zeroes))
    torn = [one[1] for one in results]
    assert len(results) > 20 and 0 < sum(torn) < len(torn) / 2, torn


def check_failure():
    model, optimizer = prepared()
    Failing.fails = True
    try:
        model(X)
    except ValueError as error:
        assert str(error) == "as it was told"
    else:
        raise AssertionError("it has not failed")
    assert steps_of(model) == [2] * 6, steps_of(model)
    for call in (optimizer.zero_grad, lambda: step(model, optimizer, X, Y)):
        assert is_refused(call)


torch.set_num_threads(1)
gradbus.init()
if sees_all_readers():  # else nothing is put off
    check_lines(zeroes=False)
    check_lines(zeroes=True)
    check_failure()
